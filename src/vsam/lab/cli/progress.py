"""Progress of runs: bars on a terminal, plain lines elsewhere; always on the standard error."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from vsam.lab.compare import Progress as Shown

__all__ = ["Bars", "Lines", "make_progress"]

Cells = Sequence[tuple[str, int, int, int]]


@contextmanager
def make_progress() -> Iterator[Shown]:
    """Bars if a person is watching, else lines."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True)) as progress:
        yield Bars(progress)


class Bars:
    """One bar for everything and one a run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._runs: dict[tuple[str, int], TaskID] = {}
        self._all: TaskID | None = None

    def begin(self, cells: Cells) -> None:
        """Show a bar for each run, and one for all if there are several."""
        if len(cells) > 1:
            done, total = sum(cell[2] for cell in cells), sum(cell[3] for cell in cells)
            self._all = self._progress.add_task("all runs", total=total, completed=done, note="")
        for method, seed, done, total in cells:
            name = f"{method} seed {seed}"
            self._runs[method, seed] = self._progress.add_task(name, total=total, completed=done, note="")

    def advance(self, method: str, seed: int, step: int) -> None:
        """Move a run's bar."""
        self._progress.update(self._runs[method, seed], completed=step)
        if self._all is not None:
            done = sum(self._progress.tasks[task].completed for task in self._runs.values())
            self._progress.update(self._all, completed=done)

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """Note the epoch's accuracy beside the bar."""
        note = f"{metrics['test_accuracy']:.2f} %  loss {metrics['train_loss']:.3f}  rate {metrics['rate']:.2f}"
        self._progress.update(self._runs[method, seed], note=note + _skips(metrics))


class Lines:
    """A line an epoch, with an estimate of the time left for everything."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._steps: dict[tuple[str, int], int] = {}
        self._begun_at = self._total = 0

    def begin(self, cells: Cells) -> None:
        """Take in how much there is to do."""
        self._steps = {(method, seed): done for method, seed, done, _ in cells}
        self._begun_at, self._total = sum(cell[2] for cell in cells), sum(cell[3] for cell in cells)

    def advance(self, method: str, seed: int, step: int) -> None:
        """Take in how far a run is."""
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
