"""Progress of a search: bars on a terminal, plain lines elsewhere; always on stderr."""

import sys
import time
from contextlib import AbstractContextManager
from datetime import timedelta

from rich.progress import Progress, TaskID

from vsam.lab.bars import bars_or_lines, fit_note
from vsam.lab.tune.best import settings_text
from vsam.lab.tune.results import Result
from vsam.lab.tune.search import Watcher
from vsam.lab.tune.space import Value

__all__ = ["Bars", "Lines", "make_watcher"]


def make_watcher() -> AbstractContextManager[Watcher]:
    """Bars on a terminal, else lines."""
    return bars_or_lines(Bars, Lines)


class Bars:
    """One bar for the steps of all trials, and one for the trial trained here."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._all = self._one = TaskID(0)
        self._steps = 0

    def begin(self, done: int, trials: int, steps: int) -> None:
        """Show both bars."""
        self._steps = steps
        self._all = self._progress.add_task("all trials", total=trials * steps, completed=done * steps, note="")
        self._one = self._progress.add_task("", total=steps, note="")

    def start(self, number: int, values: dict[str, Value], step: int) -> None:
        """Reset the trial's bar."""
        note = self._fit(settings_text(values))
        self._progress.reset(self._one, description=f"trial {number}", completed=step, total=self._steps, note=note)

    def advance(self, step: int) -> None:
        """Move both bars."""
        before = self._progress.tasks[self._one].completed
        self._progress.update(self._one, completed=step)
        self._progress.advance(self._all, step - before)

    def epoch(self, number: int, epoch: int, accuracy: float) -> None:
        """Show the accuracy."""
        self._progress.update(self._all, note=self._fit(f"trial {number}: {accuracy:.2f} % validation"))

    def end(self, result: Result, done: int) -> None:
        """Count all finished trials as complete ones, including pruned ones and other processes'."""
        self._progress.update(self._all, completed=done * self._steps, note=self._fit(_ending(result)))

    def _fit(self, note: str) -> str:
        return fit_note(self._progress, [note])


class Lines:
    """A line per epoch, and one per finished trial with an estimate of the time left."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._steps = self._trials = self._done = 0
        self._step = self._steps_here = 0

    def begin(self, done: int, trials: int, steps: int) -> None:
        """Remember how much there is to do."""
        self._done, self._trials, self._steps = done, trials, steps

    def start(self, number: int, values: dict[str, Value], step: int) -> None:
        """Print what is tried."""
        self._step = step
        goes_on = f", resuming at step {step:,} of {self._steps:,}" if step else ""
        _say(f"trial {number}: {settings_text(values)}{goes_on}")

    def advance(self, step: int) -> None:
        """Remember how far the trial is."""
        self._steps_here += step - self._step
        self._step = step

    def epoch(self, number: int, epoch: int, accuracy: float) -> None:
        """Print the epoch's line."""
        _say(f"trial {number} epoch {epoch:3}  validation {accuracy:6.2f} %  at most {self._left()} left")

    def end(self, result: Result, done: int) -> None:
        """Print the trial's line."""
        self._done, self._step = done, 0
        _say(f"trial {result.number} {_ending(result)}; {done} of {self._trials} done, at most {self._left()} left")

    def _left(self) -> str:
        """An upper bound: at this process's speed, without other processes or further pruning."""
        steps = max((self._trials - self._done) * self._steps - self._step, 0)
        seconds = int((time.monotonic() - self._begun) * steps / max(self._steps_here, 1))
        return str(timedelta(seconds=seconds))


def _ending(result: Result) -> str:
    if result.state == "failed":
        return f"failed: {result.error}"
    early = f" after {result.epochs} epochs" if result.state == "pruned" else ""
    return f"{result.state} with {result.accuracy:.2f} %{early}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
