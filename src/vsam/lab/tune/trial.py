"""One trial: a run per seed, alternating epoch by epoch."""

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
    """The runs of a trial in their folders, resumed if a process was killed.

    Args:
        plan: the search.
        values: the trial's settings.
        folder: of the trial.
        dataset: from `hold_out`.
        device: to train on.
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
        """Steps done, summed over all runs."""
        return sum(run.step for run in self._runs)

    @property
    def epoch(self) -> int:
        """Epochs that every run has completed."""
        return min(run.epoch for run in self._runs)

    def train_epoch(self, on_step: Callable[[int], object]) -> None:
        """Train every run to the end of the current epoch of the slowest one."""
        epoch = self.epoch
        for run in self._runs:
            if run.epoch == epoch:
                run.train_epoch(lambda step: on_step(self.step))

    def accuracies(self) -> list[float]:
        """Validation accuracy in percent after each completed epoch, mean over seeds."""
        return [statistics.fmean(line["test_accuracy"] for line in lines) for lines in self._epochs()]

    def facts(self) -> dict[str, Any]:
        """More about the trial: means over seeds, and the total seconds of training."""
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
        """The lines of the epochs that all runs have completed."""
        return list(zip(*map(_lines_of, self._runs), strict=False))


def _lines_of(run: Run) -> list[dict[str, Any]]:
    """A run's lines; raises if one is missing or damaged, because the trial would get another epoch's accuracy."""
    if run.epoch == 0:
        return []
    lines, reason = read_epochs(run.folder.path, run.folder.checksum("metrics.jsonl"))
    if reason or len(lines) != run.epoch:
        problem = reason or f"metrics.jsonl has {len(lines)} of {run.epoch} epochs."
        raise DamagedError(f"{run.folder.path}: {problem}")
    return lines
