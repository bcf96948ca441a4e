"""One trial: a run for each seed, trained in turns of one epoch."""

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from vsam.lab.data import Dataset
from vsam.lab.errors import DamagedError
from vsam.lab.runs.facts import TRIAL
from vsam.lab.runs.finished import read_epochs
from vsam.lab.runs.tensorboard import Observe
from vsam.lab.runs.train import Run
from vsam.lab.tune.plan import Plan
from vsam.lab.tune.space import Value, change

__all__ = ["TrialRuns"]


class TrialRuns:
    """The runs of a trial in their folders, from where a killed process left them.

    Args:
        plan: the search.
        values: the trial's settings.
        folder: of the trial.
        dataset: as `hold_out` gives it.
        device: where to train.
        observe: called with every run before it trains.
    """

    def __init__(
        self,
        plan: Plan,
        values: Mapping[str, Value],
        folder: Path,
        dataset: Dataset,
        device: torch.device,
        observe: Observe = lambda run: None,
    ) -> None:
        self._runs: list[Run] = []
        try:
            for seed in range(plan.recipe.seed, plan.recipe.seed + plan.seeds):
                recipe = change(plan.recipe, values, name=f"{plan.recipe.name}-tune", seed=seed, role=TRIAL)
                self._runs.append(Run(recipe, folder / f"seed-{seed}", dataset, device))
                observe(self._runs[-1])
        except BaseException:
            self.close()
            raise

    @property
    def step(self) -> int:
        """Steps behind all runs together."""
        return sum(run.step for run in self._runs)

    @property
    def epoch(self) -> int:
        """Whole epochs that every run has behind it."""
        return min(run.epoch for run in self._runs)

    def train_epoch(self, on_step: Callable[[int], object]) -> None:
        """Bring every run to the end of the epoch that the slowest is in."""
        epoch = self.epoch
        for run in self._runs:
            if run.epoch == epoch:
                run.train_epoch(lambda step: on_step(self.step))

    def accuracies(self) -> list[float]:
        """Validation accuracy in percent after each whole epoch, mean over the seeds."""
        return [statistics.fmean(line["test_accuracy"] for line in lines) for lines in self._epochs()]

    def facts(self) -> dict[str, Any]:
        """What else to know of the trial: means over the seeds, and all seconds of training."""
        epochs = self._epochs()
        if not epochs:
            return {}
        return {
            "loss": statistics.fmean(line["test_loss"] for line in epochs[-1]),
            "samples": statistics.fmean(line["samples"] for line in epochs[-1]),
            "steps": epochs[-1][0]["step"],
            "seconds": sum(line["seconds"] for lines in epochs for line in lines),
        }

    def close(self) -> None:
        """Release the folders."""
        for run in self._runs:
            run.close()

    def _epochs(self) -> list[tuple[dict[str, Any], ...]]:
        """The lines of whole epochs, which all runs have."""
        return list(zip(*map(_lines_of, self._runs), strict=False))


def _lines_of(run: Run) -> list[dict[str, Any]]:
    """A run's lines; a line that is missing or wrong would give a trial another epoch's accuracy."""
    if run.epoch == 0:
        return []
    lines, reason = read_epochs(run.folder.path, run.folder.checksum("metrics.jsonl"))
    if reason or len(lines) != run.epoch:
        problem = reason or f"metrics.jsonl has {len(lines)} of {run.epoch} epochs."
        raise DamagedError(f"{run.folder.path}: {problem}")
    return lines
