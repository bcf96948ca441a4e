"""`vsam bench`."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TaskID

from vsam.lab.bars import fit_name, make_bars
from vsam.lab.cli import complete, names
from vsam.lab.cli.options import JsonFile, Out, folder, typed_command
from vsam.lab.cli.output import make_console
from vsam.lab.errors import RunError, UserError
from vsam.lab.files import check_output, is_standard_output, make_folder, write_output

if TYPE_CHECKING:
    from vsam.lab.bench.measure import Plan, Report
    from vsam.lab.bench.progress import Progress

__all__ = ["bench"]


def bench(
    workloads: Annotated[
        str,
        typer.Option(
            "--workloads",
            help=f"Comma-separated names, or 'all': {', '.join(names.WORKLOADS)}.",
            autocompletion=complete.workloads,
        ),
    ] = "all",
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            help="Comma-separated names, ours and pytorch_optimizer's, or 'all'.",
            autocompletion=complete.benched,
        ),
    ] = "all",
    base: Annotated[
        str,
        typer.Option(
            "--base",
            help=f"Base optimizers: comma-separated names, or 'all': {', '.join(names.BASES)}.",
            autocompletion=complete.bases,
        ),
    ] = "sgd,sgd-fused",
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds per workload and base, at most.")] = 200,
    seconds: Annotated[float, typer.Option("--seconds", help="Seconds of timing per workload and base.")] = 120.0,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure memory in fresh processes.")] = True,
    huge: Annotated[bool, typer.Option("--huge", help="Also memory with one tensor of 500 million weights.")] = False,
    out: Out = None,
    json: JsonFile = None,
) -> None:
    """Measure time, operations and memory of a step.

    Every method is timed beside those of pytorch_optimizer, if that is installed.
    """
    from vsam.lab.bench.measure import run

    plan = _plan(workloads, methods, base, rounds, seconds, memory, huge)
    target = folder(out)
    if target is not None:
        make_folder(target)
    check_output(json)
    with _show_progress() as progress:
        report = run(plan, progress)
    _write(report, target, json)
    if not report.is_complete:
        raise RunError("Interrupted: only what was measured until then is shown and written.")


def _plan(workloads: str, methods: str, base: str, rounds: int, seconds: float, memory: bool, huge: bool) -> "Plan":
    from vsam.lab.bench.bases import BASES
    from vsam.lab.bench.contestants import OURS, choose
    from vsam.lab.bench.measure import Plan
    from vsam.lab.bench.peers import PEERS
    from vsam.lab.bench.workloads import WORKLOADS

    if rounds < 2:
        raise UserError(f"--rounds must be at least 2, got {rounds}: one round has no spread.")
    if not seconds > 0:
        raise UserError(f"--seconds must be above 0, got {seconds:g}.")
    chosen = None if methods == "all" else _split("--methods", methods)
    choose((*OURS, *PEERS), chosen)  # refuses unknown ones
    return Plan(
        _known("--workloads", workloads, WORKLOADS),
        _known("--base", base, BASES),
        None if chosen is None else tuple(chosen),
        rounds,
        seconds,
        memory,
        huge,
    )


def _known(option: str, given: str, known: Mapping[str, object]) -> tuple[str, ...]:
    chosen = list(known) if given == "all" else _split(option, given)
    for name in chosen:
        if name not in known:
            raise UserError(f"{option} does not know {name!r}. Names: {', '.join(known)}.")
    return tuple(chosen)


def _split(option: str, given: str) -> list[str]:
    chosen = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not chosen:
        raise UserError(f"{option} needs at least one name, or all.")
    return chosen


def _write(report: "Report", target: Path | None, json: Path | None) -> None:
    """Write the files, then show the tables, so that a reader who closes the pipe loses nothing."""
    from vsam.lab.bench.tables import READING, sections, to_terminal
    from vsam.lab.bench.write import to_json, write_folder

    command = typed_command()
    if target is not None:
        for path in write_folder(target, report, command):
            print(f"Written: {path}", file=sys.stderr)
    if json is not None:
        write_output(json, to_json(report, command))
    if not is_standard_output(json):
        console = make_console(140)
        for section in sections(report):
            console.print(to_terminal(section))
        console.print(READING)
        for note in report.notes:
            console.print(note)


@contextmanager
def _show_progress() -> "Iterator[Progress]":
    """Bars if a person is watching, else a line per task."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with make_bars(Console(stderr=True)) as bars:
        yield _Bars(bars)


class _Bars:
    """A bar per task."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, task: str, total: int) -> None:
        """Finish the bar before and show the next."""
        if self._task is not None:
            done = self._bars.tasks[self._task].completed
            self._bars.update(self._task, total=done)  # the time may have been up before the rounds were
        self._task = self._bars.add_task(fit_name(self._bars, task), total=total, note="")

    def advance(self, completed: int) -> None:
        """Move it."""
        assert self._task is not None
        self._bars.update(self._task, completed=completed)


class _Lines:
    """A line per task, on the standard error."""

    def begin(self, task: str, total: int) -> None:
        """Print what begins."""
        print(task, file=sys.stderr, flush=True)

    def advance(self, completed: int) -> None:
        """Print nothing for each round."""
