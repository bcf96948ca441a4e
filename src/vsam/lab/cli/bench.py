"""`vsam bench`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.progress import Progress as RichProgress
from rich.progress import TaskID

from vsam.lab.bars import bars_or_lines, fit_name
from vsam.lab.cli import complete, names
from vsam.lab.cli.options import JsonFile, Out, folder, option, typed_command
from vsam.lab.cli.output import make_console
from vsam.lab.errors import RunError, UserError
from vsam.lab.files import check_output, is_standard_output, make_folder, write_output

if TYPE_CHECKING:
    from vsam.lab.bench.measure import Plan, Progress, Report

__all__ = ["bench"]


def bench(
    workloads: Annotated[
        str,
        option("--workloads", f"Comma-separated names, or 'all': {', '.join(names.WORKLOADS)}.", complete.workloads),
    ] = "all",
    methods: Annotated[
        str, option("--methods", "Comma-separated names, ours and pytorch_optimizer's, or 'all'.", complete.benched)
    ] = "all",
    base: Annotated[
        str,
        option(
            "--base", f"Base optimizers: comma-separated names, or 'all': {', '.join(names.BASES)}.", complete.bases
        ),
    ] = "sgd,sgd-fused",
    rounds: Annotated[int, option("--rounds", "Maximum rounds per workload and base.")] = 200,
    seconds: Annotated[float, option("--seconds", "Seconds of timing per workload and base.")] = 120.0,
    memory: Annotated[bool, option("--memory/--no-memory", "Measure memory in fresh processes.")] = True,
    huge: Annotated[bool, option("--huge", "Also measure memory with one tensor of 500 million weights.")] = False,
    out: Out = None,
    json: JsonFile = None,
) -> None:
    """Measure time, operations and memory per step.

    Methods of pytorch_optimizer are timed alongside, if it is installed.
    """
    from vsam.lab.bench.measure import run

    plan = _plan(workloads, methods, base, rounds, seconds, memory, huge)
    target = folder(out)
    if target is not None:
        make_folder(target)
    check_output(json)
    with bars_or_lines(_bars, _lines) as progress:
        report = run(plan, progress)
    _write(report, target, json)
    if not report.is_complete:
        raise RunError("Interrupted. Only what was measured so far is shown and written.")


def _plan(workloads: str, methods: str, base: str, rounds: int, seconds: float, memory: bool, huge: bool) -> "Plan":
    from vsam.lab.bench.measure import Plan

    if rounds < 2:
        raise UserError(f"--rounds must be at least 2, got {rounds}: one round has no spread.")
    if not seconds > 0:
        raise UserError(f"--seconds must be above 0, got {seconds:g}.")
    chosen = None if methods == "all" else _known("--methods", methods, names.BENCHED)
    places = _known("--workloads", workloads, names.WORKLOADS), _known("--base", base, names.BASES)
    return Plan(*places, chosen, rounds, seconds, memory, huge)


def _known(flag: str, given: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names given to an option, without duplicates."""
    chosen = dict.fromkeys(name.strip() for name in given.split(",") if name.strip())
    if not chosen:
        raise UserError(f"{flag} needs at least one name, or 'all'.")
    for name in chosen:
        if name not in known and given != "all":
            raise UserError(f"{flag}: unknown name {name!r}. Known: {', '.join(known)}.")
    return known if given == "all" else tuple(chosen)


def _write(report: "Report", target: Path | None, json: Path | None) -> None:
    """Write the files first, then print the tables: a closed pipe loses nothing."""
    from vsam.lab.bench.tables import READING, sections, to_terminal
    from vsam.lab.bench.write import to_json, write_folder

    command = typed_command()
    if target is not None:
        for path in write_folder(target, report, command):
            print(f"Wrote {path}", file=sys.stderr)
    if json is not None:
        write_output(json, to_json(report, command))
    if not is_standard_output(json):
        console = make_console(140)
        for section in sections(report):
            console.print(to_terminal(section))
        console.print(READING)
        for note in report.notes:
            console.print(note)


def _bars(bars: RichProgress) -> "Progress":
    """One bar per task."""
    tasks: dict[str, TaskID] = {}

    def show(task: str, total: int, done: int) -> None:
        if task not in tasks:
            for one in bars.tasks:  # time may run out before all rounds are done
                bars.update(one.id, total=one.completed)
            tasks[task] = bars.add_task(fit_name(bars, task), note="")
        bars.update(tasks[task], completed=done, total=total)

    return show


def _lines() -> "Progress":
    """One line per task."""
    said: set[str] = set()

    def say(task: str, total: int, done: int) -> None:
        if task not in said:
            said.add(task)
            print(task, file=sys.stderr, flush=True)

    return say
