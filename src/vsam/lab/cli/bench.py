"""`vsam bench`."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.progress import TaskID

from vsam.lab.bench.bases import BASES
from vsam.lab.bench.contestants import OURS, choose
from vsam.lab.bench.measure import Plan, Report, run
from vsam.lab.bench.peers import PEERS
from vsam.lab.bench.progress import Progress
from vsam.lab.bench.tables import READING, sections, to_terminal
from vsam.lab.bench.workloads import WORKLOADS
from vsam.lab.bench.write import to_json, write_folder
from vsam.lab.cli.options import Out, folder, typed_command
from vsam.lab.cli.progress import make_bars
from vsam.lab.errors import RunError, UserError
from vsam.lab.files import make_folder, write_atomically

__all__ = ["bench"]

_NAMES = "comma-separated names, or all"


def bench(
    workloads: Annotated[str, typer.Option("--workloads", help=f"{', '.join(WORKLOADS)}: {_NAMES}.")] = "all",
    methods: Annotated[str, typer.Option("--methods", help=f"Ours and pytorch_optimizer's: {_NAMES}.")] = "all",
    base: Annotated[str, typer.Option("--base", help=f"{', '.join(BASES)}: {_NAMES}.")] = "sgd,sgd-fused",
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds per workload and base, at most.")] = 200,
    seconds: Annotated[float, typer.Option("--seconds", help="Seconds of timing per workload and base.")] = 120.0,
    memory: Annotated[bool, typer.Option("--memory/--no-memory", help="Measure memory in fresh processes.")] = True,
    huge: Annotated[bool, typer.Option("--huge", help="Also memory with one tensor of 500 million weights.")] = False,
    out: Out = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write JSON; - for stdout.")] = None,
) -> None:
    """Time every method beside its peers, count what a step does, and measure its memory."""
    plan = _plan(workloads, methods, base, rounds, seconds, memory, huge)
    target = folder(out)
    if target is not None:
        make_folder(target)
    if json is not None and str(json) != "-":
        make_folder(json.parent)
        if json.is_dir():
            raise UserError(f"{json} is a folder: give the name of a file.")
    with _show_progress() as progress:
        report = run(plan, progress)
    _write(report, target, json)
    if not report.is_complete:
        raise RunError("Interrupted: only what was measured until then is shown and written.")


def _plan(workloads: str, methods: str, base: str, rounds: int, seconds: float, memory: bool, huge: bool) -> Plan:
    if rounds < 2:
        raise UserError(f"--rounds must be at least 2, got {rounds}: one round has no spread.")
    if not seconds > 0:
        raise UserError(f"--seconds must be above 0, got {seconds:g}.")
    names = None if methods == "all" else _split("--methods", methods)
    choose((*OURS, *PEERS), names)  # refuses unknown ones
    return Plan(
        _known("--workloads", workloads, WORKLOADS),
        _known("--base", base, BASES),
        None if names is None else tuple(names),
        rounds,
        seconds,
        memory,
        huge,
    )


def _known(option: str, given: str, known: Mapping[str, object]) -> tuple[str, ...]:
    names = list(known) if given == "all" else _split(option, given)
    for name in names:
        if name not in known:
            raise UserError(f"{option} does not know {name!r}. Names: {', '.join(known)}.")
    return tuple(names)


def _split(option: str, given: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise UserError(f"{option} needs at least one name, or all.")
    return names


def _write(report: Report, target: Path | None, json: Path | None) -> None:
    """Write the files, then show the tables, so that a reader who closes the pipe loses nothing."""
    command = typed_command()
    if target is not None:
        for path in write_folder(target, report, command):
            print(f"Written: {path}", file=sys.stderr)
    if json is not None and str(json) != "-":
        write_atomically(json, to_json(report, command))
    if str(json) == "-":
        sys.stdout.write(to_json(report, command))
    else:
        console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
        for section in sections(report):
            console.print(to_terminal(section))
        console.print(READING)
        for note in report.notes:
            console.print(note)


@contextmanager
def _show_progress() -> Iterator[Progress]:
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
        self._task = self._bars.add_task(task, total=total, note="")

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
