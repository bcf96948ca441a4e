"""The search: trains one trial after another, prunes those that lag behind, and reports them to Optuna."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from optuna import Trial
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import MedianPruner
from optuna.trial import TrialState

from vsam.lab.comparison.compare import count_steps
from vsam.lab.data import Dataset
from vsam.lab.errors import DamagedError, RunError
from vsam.lab.interrupt import deferred_interrupt
from vsam.lab.runs.environment import describe_environment
from vsam.lab.runs.tensorboard import Observe
from vsam.lab.tune.plan import Plan
from vsam.lab.tune.queue import Queue
from vsam.lab.tune.results import Result, read_result
from vsam.lab.tune.space import Value
from vsam.lab.tune.storage import storage_errors
from vsam.lab.tune.trial import TrialRuns

__all__ = ["Search", "Watcher", "make_pruner"]

_SECONDS_BETWEEN_SIGNS = 60.0
_log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Shows the progress of a search."""

    def begin(self, done: int, trials: int, steps: int) -> None:
        """The search starts: trials done, total trials, and steps per trial."""

    def start(self, number: int, values: dict[str, Value], step: int) -> None:
        """A trial starts, or resumes after a step."""

    def advance(self, step: int) -> None:
        """The trial has reached a step."""

    def epoch(self, number: int, epoch: int, accuracy: float) -> None:
        """The trial has finished an epoch, counted from 1, with this validation accuracy."""

    def end(self, result: Result, done: int) -> None:
        """The trial has ended; `done` have in total."""


def make_pruner(epochs: int) -> MedianPruner:
    """Prunes a trial in the last third of its epochs if it never was as good as the median of the completed ones.

    Not earlier, and not by successive halving: under a cosine schedule, the ranking of runs before two thirds of their
    epochs says next to nothing about the final one (docs/tuning.md has the numbers), and a large rho starts slowly.
    """
    return MedianPruner(n_startup_trials=5, n_warmup_steps=-(-2 * epochs // 3))


class Search:
    """One process's part of a search; any number of processes may work on the same one.

    Args:
        plan: what is searched.
        folder: of the search; trials train below it.
        dataset: from `hold_out`.
        device: to train on.
        trials: total number, whoever trains them, at least 1.
        storage: URL of a database, or None for a file in the folder.
        deadline: on the `time.monotonic` clock; after it, the search stops at the end of an epoch.
        observe: called with every run before it trains.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        dataset: Dataset,
        device: torch.device,
        trials: int,
        storage: str | None = None,
        deadline: float | None = None,
        observe: Observe = lambda run: None,
    ) -> None:
        self.plan, self.dataset, self.device, self._observe = plan, dataset, device, observe
        self._url, self._deadline = storage, deadline
        with storage_errors(storage):
            self._queue = Queue(plan, folder, trials, storage, make_pruner(plan.recipe.epochs))

    @contextmanager
    def results(self) -> Iterator[list[Result]]:
        """All trials so far, whoever trained them; other processes of the folder wait until the block ends."""
        with self._queue.lock:
            with storage_errors(self._url):
                results = [read_result(trial, self.plan) for trial in self._queue.trials()]
            yield [result for result in results if result.is_over or result.number < self._queue.num_trials]

    def run(self, watcher: Watcher) -> int:
        """Train trials until there are enough, or until the deadline; returns how many were trained here."""
        queue = self._queue
        num_trained = 0
        with deferred_interrupt() as is_interrupted, storage_errors(self._url):
            steps = self.plan.seeds * count_steps(self.plan.recipe, self.dataset)
            watcher.begin(queue.num_done, queue.num_trials, steps)
            while not self._is_late() and not is_interrupted():
                with queue.claim() as trial:
                    if trial is None:
                        break
                    self._train(trial, watcher)
                num_trained += 1
                result = read_result(queue.trial(trial.number), self.plan)
                if result.is_over:
                    watcher.end(result, queue.num_done)
            self._clear_away()
        return num_trained

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _train(self, trial: Trial, watcher: Watcher) -> None:
        try:
            try:
                self._train_runs(trial, watcher)
            except DamagedError as error:
                path = self._queue.path(trial.number)
                _log.warning("Trial %d is restarted: %s", trial.number, error)
                for folder in path.glob("seed-*"):
                    shutil.rmtree(folder)
                self._train_runs(trial, watcher)
        except (RunError, torch.OutOfMemoryError, MemoryError) as error:
            if isinstance(error.__cause__, OSError):  # a full disk is not the fault of the settings
                raise
            self._finish(trial, {"error": str(error) or type(error).__name__})
        except UpdateFinishedTrialError:  # another machine took it over and finished it
            pass
        self._clear_away()

    def _train_runs(self, trial: Trial, watcher: Watcher) -> None:
        values = self._queue.trial(trial.number).params  # as stored: two machines may draw at the same time
        path = self._queue.path(trial.number)
        runs = TrialRuns(self.plan, values, path, self.dataset, self.device, self._observe)
        try:
            watcher.start(trial.number, values, runs.step)
            self._train_epochs(trial, runs, watcher)
        finally:
            runs.close()

    def _train_epochs(self, trial: Trial, runs: TrialRuns, watcher: Watcher) -> None:
        while True:
            reported = self._queue.trial(trial.number).intermediate_values
            for epoch, accuracy in enumerate(runs.accuracies(), start=1):
                if epoch not in reported:
                    trial.report(accuracy, epoch)
                    watcher.epoch(trial.number, epoch, accuracy)
            if runs.epoch == self.plan.recipe.epochs:
                return self._finish(trial, runs.facts(), runs.accuracies()[-1])
            if trial.should_prune():
                return self._finish(trial, runs.facts())
            if self._is_late():
                return self._queue.give_back(trial.number)
            runs.train_epoch(self._on_step(trial, watcher))

    def _on_step(self, trial: Trial, watcher: Watcher) -> Callable[[int], None]:
        last_sign = time.monotonic()

        def tell(step: int) -> None:
            nonlocal last_sign
            watcher.advance(step)
            if time.monotonic() - last_sign > _SECONDS_BETWEEN_SIGNS:
                self._queue.give_sign(trial)
                last_sign = time.monotonic()

        return tell

    def _finish(self, trial: Trial, facts: dict[str, Any], value: float | None = None) -> None:
        """Report the result; a failed trial is reported as pruned, so that the sampler learns to avoid its settings."""
        if self._queue.trial(trial.number).state != TrialState.RUNNING:
            return  # another machine took it over
        trial.set_user_attr("facts", {"device": describe_environment(self.device)["device"], **facts})
        self._queue.study.tell(trial, value, TrialState.PRUNED if value is None else TrialState.COMPLETE)

    def _clear_away(self) -> None:
        """Remove the checkpoints of finished trials: for large networks they are gigabytes."""
        over = [trial.number for trial in self._queue.trials() if trial.state.is_finished()]
        for number in over:
            for path in self._queue.path(number).glob("seed-*/checkpoint.pt"):
                path.unlink(missing_ok=True)
