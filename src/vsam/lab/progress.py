"""Progress of runs: bars on a terminal, plain lines elsewhere. Always on stderr."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from vsam.lab.text import one_line

__all__ = ["Bars", "Lines", "NullProgress", "Shown", "make_bars", "make_progress", "make_status"]

_NARROW = 100  # below this width a percentage replaces the step count
_PERCENT, _COUNT = len("100%"), len("9999999/9999999")
_TIME, _GAPS, _SHORTEST_BAR = len("99:59:59"), 4, 10
_SHORTEST_NAME, _USUAL_NOTE = 12, 20
_SECONDS_BETWEEN_LINES = 5.0  # so that quick work prints nothing
_Cell = tuple[str, int]


class Shown(Protocol):
    """Shows the progress of several runs, which are named by label and seed."""

    def begin(self, runs: Sequence[tuple[str, int, int, int]]) -> None:
        """All runs are known: label, seed, steps done, total steps."""

    def advance(self, label: str, seed: int, step: int) -> None:
        """A run has reached a step."""

    def epoch(self, label: str, seed: int, metrics: dict[str, Any]) -> None:
        """A run has finished an epoch."""


class NullProgress:
    """Shows nothing."""

    def begin(self, runs: Sequence[tuple[str, int, int, int]]) -> None:
        """Nothing."""

    def advance(self, label: str, seed: int, step: int) -> None:
        """Nothing."""

    def epoch(self, label: str, seed: int, metrics: dict[str, Any]) -> None:
        """Nothing."""


@contextmanager
def make_progress(*, is_shown: bool = True) -> Iterator[Shown]:
    """Show bars on a terminal, lines elsewhere, and nothing if another process shows the same."""
    if not is_shown:
        yield NullProgress()
    elif sys.stderr.isatty():
        with make_bars(Console(stderr=True)) as progress:
            yield Bars(progress)
    else:
        yield Lines()


@contextmanager
def make_status() -> Iterator[Callable[[str], object]]:
    """Show the latest of many messages: in place on a terminal, else one every few seconds."""
    if sys.stderr.isatty():
        console = Console(stderr=True, markup=False, highlight=False)
        with console.status("") as status:
            yield lambda text: status.update(Text(one_line(text), no_wrap=True, overflow="ellipsis"))
        return
    last = time.monotonic()

    def say(text: str) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(one_line(text), file=sys.stderr, flush=True)

    yield say


class Bars:
    """One bar for all runs, and one per run of the current seed that is in progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._runs: dict[_Cell, TaskID] = {}
        self._all: TaskID | None = None
        self._begun: set[_Cell] = set()
        self._shown: list[_Cell] = []  # most recently advanced last

    def begin(self, runs: Sequence[tuple[str, int, int, int]]) -> None:
        """Show the bar of a single run. For several, only the total until they advance."""
        if len(runs) > 1:
            done, total = sum(run[2] for run in runs), sum(run[3] for run in runs)
            self._all = self._progress.add_task("all runs", total=total, completed=done, note="")
        for label, seed, done, total in runs:
            name = fit_name(self._progress, f"{label} seed {seed}")
            self._runs[label, seed] = self._progress.add_task(
                name, total=total, completed=done, note="", visible=len(runs) == 1
            )

    def advance(self, label: str, seed: int, step: int) -> None:
        """Advance a run's bar."""
        self._progress.update(self._runs[label, seed], completed=step)
        if self._all is not None:
            self._show((label, seed))
            done = sum(self._progress.tasks[task].completed for task in self._runs.values())
            self._progress.update(self._all, completed=done)

    def epoch(self, label: str, seed: int, metrics: dict[str, Any]) -> None:
        """Show the epoch's accuracy next to the bar. Hide the bar of a finished run."""
        skips = [f"skipped {metrics['skipped']}"] if metrics["skipped"] else []
        numbers = (f"rate {metrics['rate']:.2f}", f"loss {metrics['train_loss']:.3f}")
        task = self._runs[label, seed]
        note = fit_note(self._progress, [f"{metrics['test_accuracy']:.2f} %", *skips, *numbers])
        self._progress.update(task, note=note)
        if self._all is not None and self._progress.tasks[task].finished:
            self._hide([(label, seed)])

    def _show(self, cell: _Cell) -> None:
        """Show a run that advances. Hide those of earlier seeds, and the least recent if there are too many."""
        if cell not in self._begun:
            self._begun.add(cell)
            self._hide([other for other in self._shown if other[1] != cell[1]])
        self._shown = [*(other for other in self._shown if other != cell), cell]
        self._progress.update(self._runs[cell], visible=True)
        self._hide(self._shown[: -max(1, self._progress.console.height - 1)])  # one line is for the total

    def _hide(self, cells: Sequence[_Cell]) -> None:
        for cell in cells:
            self._progress.update(self._runs[cell], visible=False)
        self._shown = [cell for cell in self._shown if cell not in cells]


class Lines:
    """One line per epoch, with an estimate of the total time left."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._steps: dict[_Cell, int] = {}
        self._begun_at = self._total = 0

    def begin(self, runs: Sequence[tuple[str, int, int, int]]) -> None:
        """Record the total work."""
        self._steps = {(label, seed): done for label, seed, done, _ in runs}
        self._begun_at, self._total = sum(run[2] for run in runs), sum(run[3] for run in runs)

    def advance(self, label: str, seed: int, step: int) -> None:
        """Record a run's progress."""
        self._steps[label, seed] = step

    def epoch(self, label: str, seed: int, metrics: dict[str, Any]) -> None:
        """Print the epoch's line."""
        self._steps[label, seed] = metrics["step"]
        done = sum(self._steps.values())
        left = (time.monotonic() - self._begun) * (self._total - done) / max(done - self._begun_at, 1)
        averaged = f"  averaged {metrics['averaged_accuracy']:6.2f} %" if "averaged_accuracy" in metrics else ""
        skipped = f"  skipped {metrics['skipped']}" if metrics["skipped"] else ""
        print(
            f"{label:10} seed {seed} epoch {metrics['epoch'] + 1:3}  test {metrics['test_accuracy']:6.2f} %{averaged}  "
            f"train loss {metrics['train_loss']:.4f}  rate {metrics['rate']:.2f}  {metrics['ais']:6.0f} images/s  "
            f"left {int(left) // 60}:{int(left) % 60:02}{skipped}",
            file=sys.stderr,
            flush=True,
        )


def make_bars(console: Console) -> Progress:
    """Return rich's bars: a name, the bar, its progress, the time left, and the field `note`. One line each."""
    column = Column(no_wrap=True)
    count: ProgressColumn = TaskProgressColumn("{task.percentage:>3.0f}%", table_column=column, markup=False)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        count if console.width < _NARROW else MofNCompleteColumn(table_column=column),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=_TIME)),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
    )


def fit_name(progress: Progress, name: str) -> str:
    """Return a task's name, cut at the start if it would leave no room for a bar and a short note."""
    most = max(_SHORTEST_NAME, _columns(progress) - _USUAL_NOTE)
    return name if len(name) <= most else f"…{name[1 - most :]}"


def fit_note(progress: Progress, parts: Sequence[str]) -> str:
    """Return as many parts of a note as fit next to the longest name. The first is cut if necessary."""
    most = max(1, _columns(progress) - max((len(task.description) for task in progress.tasks), default=0))
    note, *others = parts
    if len(note) > most:
        return f"{note[: most - 1]}…"
    for part in others:
        if len(note) + 2 + len(part) <= most:
            note += f"  {part}"
    return note


def _columns(progress: Progress) -> int:
    """Return how many columns are left for a name and a note."""
    width = progress.console.width
    return width - _SHORTEST_BAR - (_PERCENT if width < _NARROW else _COUNT) - _TIME - _GAPS
