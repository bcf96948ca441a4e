"""`vsam doctor`."""

import tomllib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vsam.lab.cli import complete
from vsam.lab.cli.choose import show_time, size_text
from vsam.lab.cli.options import DataDir, Json
from vsam.lab.cli.output import facts_text, say, show_json
from vsam.lab.errors import RunError, UserError

if TYPE_CHECKING:
    from vsam import SharpnessAware
    from vsam.lab.doctor import Finding
    from vsam.lab.subject import Subject

__all__ = ["doctor"]

_SIGNS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
_STOPS = ("loss", "gradients", "steps")
"""Problems that leave nothing to time."""


def doctor(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE.py]",
            help="A Python file that defines model, loss(model, batch) and batches, and optionally optimizer and base.",
        ),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="Used if the file defines no optimizer.", autocompletion=complete.method)
    ] = "vsam",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the method, e.g. rho=0.1. May be repeated."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to time steps; 0 to skip.")] = 5.0,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Check the machine, and a model and loss of your own.

    Runs a few dry steps of the method, and reports what it costs and what looks wrong. Exit codes: 0 nothing looks
    wrong, 1 something does, 2 the file cannot be used.
    """
    from vsam.lab.doctor import check_machine, check_subject, make_optimizer
    from vsam.lab.subject import read_file

    if not 0 <= seconds <= 3600:
        raise UserError(f"--seconds must be between 0 and 3600, got {seconds:g}.")
    chosen = _settings(settings)
    _check_method(method)
    subject = None if file is None else read_file(file)
    findings = check_machine(data_dir)
    if subject is not None:
        optimizer = make_optimizer(subject, method, chosen)
        own = check_subject(subject, optimizer)
        findings += own
        if seconds and not any(one.level == "problem" and one.subject in _STOPS for one in own):
            findings.append(_cost(subject, optimizer, seconds))
    num_problems = sum(one.level == "problem" for one in findings)
    if json:
        show_json({"problems": num_problems, "findings": [one.to_dict() for one in findings]})
    else:
        width = max(len(one.subject) for one in findings)
        for one in findings:
            say(facts_text({f"{_SIGNS[one.level]:9}{one.subject:{width}}": one.text}))
        say("\nNothing looks wrong." if not num_problems else f"\nProblems: {num_problems}.")
    if num_problems:
        raise typer.Exit(1)


def _settings(given: list[str] | None) -> dict[str, Any]:
    """The method's settings, with values parsed as TOML; what does not parse is a string."""
    found: dict[str, Any] = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set needs key=value, got {one!r}.")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except (ValueError, RecursionError):
            found[key.strip()] = value.strip()
    return found


def _check_method(name: str) -> None:
    from vsam.names import find

    try:
        find(name)
    except ValueError as error:
        raise UserError(f"--method: {error}") from error


def _cost(subject: "Subject", optimizer: "SharpnessAware", seconds: float) -> "Finding":
    """The expected time per step of the optimizer."""
    from vsam.lab.choose import time_passes
    from vsam.lab.doctor.finding import note, ok

    kind, price = type(optimizer).__name__, optimizer.expected_price
    keeps_memory = optimizer.between.keeps_memory or optimizer.where.keeps_memory
    try:
        with show_time("Timing steps", seconds) as advance:
            times = time_passes(subject, seconds, advance)
    except (RunError, UserError) as error:
        return note("cost", str(error))
    plain = times.plain_with_memory if keeps_memory else times.plain
    sampled = times.sampled_with_memory if keeps_memory else times.sampled
    own = f"between {plain:.2f} and {sampled:.2f}, as it decides during training"
    if price is not None:
        own = f"{plain + (price - 1) * (sampled - plain):.2f} at {price:.2f} passes per step"
    kept = f"a buffer of {size_text(subject.num_bytes)} or more" if keeps_memory else "no buffer"
    base = type(subject.base).__name__
    return ok(
        "cost",
        f"{base} takes {1000 * times.base:.3g} ms per step. In multiples of that: {kind} {own}; SAM "
        f"{times.sampled:.2f}. {kind} keeps {kept} between steps",
    )
