"""`vsam choose`."""

import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from vsam.lab.bars import fit_name, make_bars
from vsam.lab.cli import complete
from vsam.lab.cli.options import Changes, DataDir, Device, Json, Use
from vsam.lab.cli.output import make_console, say, show_json
from vsam.lab.errors import UserError

if TYPE_CHECKING:
    from vsam.lab.choose import Advice, Cost, Times
    from vsam.lab.subject import Subject

__all__ = ["choose", "show_time", "size_text"]


def choose(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|FILE.py",
            help="A recipe, or a Python file that defines model, loss(model, batch) and batches.",
            autocompletion=complete.recipes,
        ),
    ] = "fashion-mini",
    price: Annotated[
        float | None,
        typer.Option("--price", help="Your budget in passes per step, from 1 (SGD) to 2 (SAM). Default: 1.2."),
    ] = None,
    time: Annotated[
        float | None, typer.Option("--time", help="Or your budget in time per step, relative to the base optimizer.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to measure.")] = 30.0,
    json: Json = False,
    changes: Changes = None,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Recommend a method for a price, and show what each costs here.

    Times passes and steps on this machine for half a minute. Nothing is trained or written.
    """
    from vsam.lab.choose import advise, list_costs, time_passes
    from vsam.lab.choose.advice import check_price, check_time
    from vsam.lab.subject import is_file

    if price is not None and time is not None:
        raise UserError("--price and --time both set the budget: give only one.")
    price = None if price is None else check_price(price)
    time = None if time is None else check_time(time)
    if not 0 < seconds <= 3600:
        raise UserError(f"--seconds must be above 0 and at most 3600, got {seconds:g}.")
    subject = _subject(what, changes, data_dir, device)
    subject.clear()
    subject.backward(subject.compute(subject.next_batch()))
    with show_time("Timing steps", seconds) as advance:
        times = time_passes(subject, seconds, advance)
    advice = advise(subject, times, price, time)
    costs = list_costs(times, subject.num_bytes, advice.settings.get("budget", 0.2))
    command = None if is_file(what) else _command(what, advice, changes, use)
    if json:
        return show_json(_content(subject, times, costs, advice, command))
    _show(subject, times, costs, advice, command)
    return None


def _subject(what: str, changes: list[str] | None, data_dir: Any, device: str | None) -> "Subject":
    from vsam.lab.subject import is_file, read_file, read_recipe_subject

    if is_file(what):
        if changes or device is not None or data_dir is not None:
            raise UserError("--set, --device and --data-dir are only for recipes: a file makes its own model and data.")
        return read_file(what)
    from vsam.lab.recipes.load import load_recipe
    from vsam.lab.runs.environment import choose_device

    return read_recipe_subject(load_recipe(what, changes=changes or ()), data_dir, choose_device(device))


def _command(what: str, advice: "Advice", changes: list[str] | None, use: list[Path] | None) -> str:
    """The command that trains the recipe this way."""
    words = ["vsam", "train", what]
    for file in use or ():
        words += ["--use", str(file)]
    settings = [*(changes or ()), f"method={advice.method}"]
    if "budget" in advice.settings:
        settings.append(f"budget.budget={advice.settings['budget']:g}")
    return shlex.join([*words, *(word for setting in settings for word in ("--set", setting))])


def _content(
    subject: "Subject", times: "Times", costs: "list[Cost]", advice: "Advice", command: str | None
) -> dict[str, Any]:
    from vsam.lab.runs.environment import describe_environment

    return {
        "subject": subject.name,
        "base": type(subject.base).__name__,
        "parameter_bytes": subject.num_bytes,
        "environment": describe_environment(subject.device),
        "times": asdict(times),
        "methods": [cost.to_dict() for cost in costs],
        "advice": {**asdict(advice), "command": command},
    }


def _show(subject: "Subject", times: "Times", costs: "list[Cost]", advice: "Advice", command: str | None) -> None:
    from vsam.lab.runs.environment import describe_environment

    facts = describe_environment(subject.device)
    base = type(subject.base).__name__
    say(
        f"{subject.name}: {size_text(subject.num_bytes)} of parameters, {facts['device']}, threads: "
        f"{facts['threads']}, torch {facts['torch']}.\nA step of {base} takes {_seconds(times.base)} (median of "
        f"{times.rounds} rounds).\n"
    )
    table = Table(box=None, pad_edge=False)
    headings = ("method", "passes", f"time, {base} = 1", "speed, SAM = 1", "memory kept", "extra in second pass")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=heading == "method")
    for cost in costs:
        about = "about " if cost.is_estimate else ""
        name = base if cost.method == "sgd" else cost.method
        numbers = (f"{about}{cost.price:.2f}", f"{about}{cost.time:.2f}", f"{about}{cost.speed_to_sam:.2f}")
        table.add_row(name, *numbers, size_text(cost.kept), size_text(cost.extra))
    make_console(120).print(table)
    say(
        "\nSteps of SAM and vSAM were timed in alternation; the other times follow from their passes.\n"
        "'about': these methods decide during training. Memory is in addition to weights, gradients\n"
        "and the base optimizer's state.\n"
    )
    name = base if advice.method == "sgd" else advice.method
    say(f"Use {name}: about {advice.time:.2f} times {base}'s time per step.\n{advice.reason}\n")
    say(textwrap.indent(advice.code, "    "))
    if command is not None:
        say(f"\nOr: {command}")
    say("\nWhat accuracy to expect depends on your data: docs/choosing.md; what it was in our runs: docs/frontier.md.")


def size_text(num_bytes: int | None) -> str:
    """A size in a readable unit; None means that it depends on the data."""
    if num_bytes is None:
        return "data-dependent"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 2**10:.1f} KiB" if num_bytes else "0"


def _seconds(time: float) -> str:
    return f"{time:.2f} s" if time >= 1 else f"{1000 * time:.3g} ms"


@contextmanager
def show_time(task: str, seconds: float) -> Iterator[Callable[[float], object]]:
    """On a terminal, a bar that fills over the given seconds; elsewhere one line."""
    if not sys.stderr.isatty():
        print(f"{task} for {seconds:g} s.", file=sys.stderr, flush=True)
        yield lambda spent: None
        return
    with make_bars(Console(stderr=True)) as bars:
        bar = bars.add_task(fit_name(bars, task), total=round(10 * seconds), note="")
        yield lambda spent: bars.update(bar, completed=round(10 * spent))
