"""Progress of runs: bars on a terminal, plain lines elsewhere; always on stderr."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from vsam.lab.bars import bars_or_lines, fit_name, fit_note
from vsam.lab.comparison.progress import NullProgress
from vsam.lab.comparison.progress import Progress as Shown
from vsam.lab.text import one_line

__all__ = ["Bars", "Lines", "make_progress", "make_status"]

Cells = Sequence[tuple[str, int, int, int]]
Cell = tuple[str, int]
_SECONDS_BETWEEN_LINES = 5.0  # so that quick work prints nothing


def make_progress(*, is_shown: bool = True) -> AbstractContextManager[Shown]:
    """Bars on a terminal, else lines; nothing if another process shows the same."""
    return bars_or_lines(Bars, Lines) if is_shown else nullcontext(NullProgress())


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
        self._runs: dict[Cell, TaskID] = {}
        self._all: TaskID | None = None
        self._begun: set[Cell] = set()
        self._shown: list[Cell] = []  # most recently advanced last

    def begin(self, cells: Cells) -> None:
        """Show the bar of a single run; for several, only the total until they advance."""
        if len(cells) > 1:
            done, total = sum(cell[2] for cell in cells), sum(cell[3] for cell in cells)
            self._all = self._progress.add_task("all runs", total=total, completed=done, note="")
        for method, seed, done, total in cells:
            name = fit_name(self._progress, f"{method} seed {seed}")
            self._runs[method, seed] = self._progress.add_task(
                name, total=total, completed=done, note="", visible=len(cells) == 1
            )

    def advance(self, method: str, seed: int, step: int) -> None:
        """Advance a run's bar."""
        self._progress.update(self._runs[method, seed], completed=step)
        if self._all is not None:
            self._show((method, seed))
            done = sum(self._progress.tasks[task].completed for task in self._runs.values())
            self._progress.update(self._all, completed=done)

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """Show the epoch's accuracy next to the bar; hide the bar of a finished run."""
        skips = [f"skipped {metrics['skipped']}"] if metrics["skipped"] else []
        numbers = (
            f"{metrics['test_accuracy']:.2f} %",
            f"rate {metrics['rate']:.2f}",
            f"loss {metrics['train_loss']:.3f}",
        )
        task = self._runs[method, seed]
        self._progress.update(task, note=fit_note(self._progress, [numbers[0], *skips, *numbers[1:]]))
        if self._all is not None and self._progress.tasks[task].finished:
            self._hide([(method, seed)])

    def _show(self, cell: Cell) -> None:
        """Show a run that advances; hide those of earlier seeds, and the least recent if there are too many."""
        if cell not in self._begun:
            self._begun.add(cell)
            self._hide([other for other in self._shown if other[1] != cell[1]])
        self._shown = [*(other for other in self._shown if other != cell), cell]
        self._progress.update(self._runs[cell], visible=True)
        room = max(1, self._progress.console.height - 1)  # one line is for the total
        self._hide(self._shown[:-room])

    def _hide(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            self._progress.update(self._runs[cell], visible=False)
        self._shown = [cell for cell in self._shown if cell not in cells]


class Lines:
    """One line per epoch, with an estimate of the total time left."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._steps: dict[tuple[str, int], int] = {}
        self._begun_at = self._total = 0

    def begin(self, cells: Cells) -> None:
        """Record the total work."""
        self._steps = {(method, seed): done for method, seed, done, _ in cells}
        self._begun_at, self._total = sum(cell[2] for cell in cells), sum(cell[3] for cell in cells)

    def advance(self, method: str, seed: int, step: int) -> None:
        """Record a run's progress."""
        self._steps[method, seed] = step

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """Print the epoch's line."""
        self._steps[method, seed] = metrics["step"]
        done = sum(self._steps.values())
        left = (time.monotonic() - self._begun) * (self._total - done) / max(done - self._begun_at, 1)
        print(
            f"{method:10} seed {seed} epoch {metrics['epoch'] + 1:3}  test {metrics['test_accuracy']:6.2f} %  "
            f"train loss {metrics['train_loss']:.4f}  rate {metrics['rate']:.2f}  {metrics['ais']:6.0f} images/s  "
            f"left {int(left) // 60}:{int(left) % 60:02}{_skips(metrics)}",
            file=sys.stderr,
            flush=True,
        )


def _skips(metrics: dict[str, Any]) -> str:
    return f"  skipped {metrics['skipped']}" if metrics["skipped"] else ""
