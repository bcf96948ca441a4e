"""`vsam check`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vsam.lab.cli import complete
from vsam.lab.cli.options import Changes, DataDir, Device, Json, Use
from vsam.lab.cli.output import facts_text, make_console, say, show_json, show_table
from vsam.lab.errors import RunError, UserError
from vsam.lab.progress import make_status

if TYPE_CHECKING:
    from vsam.lab.check import Workload

__all__ = ["check"]

_SIGNS = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
_STOPS = ("loss", "gradients", "steps")  # problems that leave nothing to time


def check(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE.py|RECIPE]",
            help="A Python file that defines model, loss(model, batch) and batches, and optionally base and optimizer; "
            "a file as for --use; or a recipe.",
            autocompletion=complete.recipes,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="Method to try, if the file has no optimizer.", autocompletion=complete.method),
    ] = None,
    changes: Changes = None,
    budget: Annotated[float, typer.Option("--budget", help="Fraction of sampled steps of vsam-budget.")] = 0.2,
    seconds: Annotated[float, typer.Option("--seconds", help="How long to time steps; 0 to skip.")] = 10.0,
    accuracy: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--accuracy",
            metavar="TRAIN TEST",
            help="Training and test accuracy in percent at the end of your base run: shows the methods' gains "
            "in the most similar settings of the map.",
        ),
    ] = None,
    json: Json = False,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Check this machine, or a model and loss.

    Says what looks wrong, and what each method would cost here. Takes a few steps, and writes nothing. Exit codes: 0
    nothing looks wrong, 1 something does, 2 the file cannot be used.
    """
    from vsam.lab.check import check_machine, check_workload, read_workload

    if not 0 <= seconds <= 3600:
        raise UserError(f"--seconds must be between 0 and 3600, got {seconds:g}.")
    if not 0 < budget <= 1:
        raise UserError(f"--budget must be above 0 and at most 1, got {budget:g}.")
    if what is None and (method or changes):
        raise UserError("--method and --set need a file or a recipe: vsam check FILE.py.")
    if accuracy is not None:
        if what is not None:
            raise UserError("--accuracy cannot be combined with a file: vsam check --accuracy 99 61.")
        _show_settings(*accuracy, json)
        return
    findings, timed = [], None
    if what is None:
        findings = check_machine(data_dir)
    else:
        workload = read_workload(what, method=method, changes=changes or (), data_dir=data_dir, device=device)
        findings = check_workload(workload)
        if seconds and not any(one.level == "problem" and one.subject in _STOPS for one in findings):
            timed = _time(workload, seconds, budget)
    num_problems = sum(one.level == "problem" for one in findings)
    if json:
        content: dict[str, Any] = {"problems": num_problems, "findings": [asdict(one) for one in findings]}
        if timed is not None:
            content |= {"seconds_per_step": timed[0], "methods": timed[1]}
        show_json(content)
    else:
        width = max(len(one.subject) for one in findings)
        for one in findings:
            say(facts_text({f"{_SIGNS[one.level]:9}{one.subject:{width}}": one.text}))
        say("\nNothing looks wrong." if not num_problems else f"\nProblems: {num_problems}.")
        if timed is not None:
            _show_costs(workload, *timed, budget)
    if num_problems:
        raise typer.Exit(1)


def _show_settings(train_accuracy: float, test_accuracy: float, json: bool) -> None:
    """Show the methods' gains in the most similar settings of the map."""
    from vsam.lab.statistics import Interval
    from vsam.lab.when import FAR, settings_like

    rows = settings_like(train_accuracy, test_accuracy)
    overfitting = train_accuracy - test_accuracy
    if json:
        show_json({"overfitting": overfitting, "settings": rows})
        return
    if overfitting >= 0:
        say(f"Your base overfits by {overfitting:.1f} points.")
    else:
        say("Your base does not overfit. Was its training accuracy measured with augmentation?")
    if min(row["distance"] for row in rows) > FAR:
        say(f"No setting of the map is within {FAR:g} points of both accuracies: it has no case like yours.")
    say("Gains over the base in the nearest settings, in points, with 95 % intervals over n seeds (*: excludes 0):\n")
    heads = ["setting", "base: training / test %", "n", *rows[0]["gains"]]
    table = [
        [
            row["setting"],
            f"{row['train_accuracy']:.0f} / {row['test_accuracy']:.0f}",
            str(row["n"]),
            *(Interval(**gain).starred(1) for gain in row["gains"].values()),
        ]
        for row in rows
    ]
    show_table(heads, table)
    lines = {"SAM": "\nSAM was", "base, twice the epochs": "At the same cost, twice the epochs of the base were"}
    for name, words in lines.items():
        signs = [Interval(**row["gains"][name]).sign for row in rows]
        better, worse = signs.count(1), signs.count(-1)
        say(f"{words} better in {better} of {len(rows)}, worse in {worse}, undecided in {signs.count(0)}.")
    say("These are small networks on a CPU: see docs/when.md in the repository.")


def _time(workload: "Workload", seconds: float, budget: float) -> tuple[float, list[dict[str, Any]]] | None:
    from vsam.lab.check import costs

    try:
        with make_status() as show:
            return costs(workload, seconds, budget, lambda spent: show(f"Timing steps: {spent:.0f} of {seconds:g} s"))
    except (RunError, UserError) as error:
        say(f"Note: {error}", err=True)
        return None


def _show_costs(workload: "Workload", seconds: float, rows: Sequence[dict[str, Any]], budget: float) -> None:
    base = type(workload.base).__name__
    time = f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
    say(f"\nA step of {base} takes {time}; parameters: {_size(workload.num_bytes)}.\n")
    table = Table(box=None, pad_edge=False)
    for heading in ("method", "passes", f"time, {base} = 1", "memory kept", "extra in second pass"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=heading == "method")
    for row in rows:
        about = "about " if row["is_estimate"] else ""
        numbers = (f"{about}{row['cost']:.2f}", f"{about}{row['time']:.2f}", _size(row["kept"]), _size(row["extra"]))
        table.add_row(base.lower() if row["method"] == "sgd" else row["method"], *numbers)
    make_console(120).print(table)
    say(
        "\nSteps of SAM and vSAM were timed in alternation; the other times follow from their passes.\n"
        "'about': decides during training. Memory is beyond weights, gradients and the base's state.\n\n"
        "To start with, in your own loop:\n"
        f"    optimizer = vsam.VSAM(base, model=model, rho={workload.rho:g}, budget={budget:g})"
    )


def _size(num_bytes: int | None) -> str:
    """Return a size in a readable unit. None means that it depends on the data."""
    if num_bytes is None:
        return "data-dependent"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 2**10:.1f} KiB" if num_bytes else "0"
