"""Relative speeds of runs that alternated on one machine, so that its noise affected all alike."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vsam.lab.runs.finished import FinishedRun

__all__ = ["Speed", "relative_speed", "seed_speed"]

_FEWEST_PAIRS = 20
_FEWEST_PAIRS_OF_A_SEED = 5  # enough here, because an interval over seeds covers the noise of each seed's ratio


@dataclass(frozen=True)
class Speed:
    """The speed of runs relative to others.

    Args:
        ratio: 1 for the same speed, 2 for twice as fast.
        quartiles: of the ratio over epochs that ran in the same turn, or None if there were too few.
    """

    ratio: float
    quartiles: tuple[float, float] | None


def relative_speed(runs: Iterable[FinishedRun], references: Iterable[FinishedRun]) -> Speed:
    """The speed of runs relative to reference runs.

    Epochs of one seed that ran in the same turn are paired, and the mean of their cost ratios is taken, so that a turn
    in which the machine was slow weighs no more than others. An epoch whose time per gradient pass, relative to its
    reference, is far from the others' was disturbed: outliers are clipped to the 10th–90th percentile.
    Runs that share fewer than 20 turns were not timed together: their mean AIS are divided, and there are no quartiles.
    """
    runs, references = list(runs), list(references)
    pairs = _pairs(runs, references)
    if len(pairs) < _FEWEST_PAIRS:
        return Speed(_mean_ais(runs) / _mean_ais(references), None)
    low, _, high = statistics.quantiles([pair.reference.seconds / pair.own.seconds for pair in pairs], n=4)
    return Speed(_ratio(pairs), (low, high))


def seed_speed(run: FinishedRun, reference: FinishedRun) -> float | None:
    """A run's speed relative to another with the same seed, or None if they share fewer than 5 turns.

    For statistics over seeds. Computed as in `relative_speed`; with fewer than ten epochs, none is clipped.
    """
    pairs = _pairs([run], [reference])
    return _ratio(pairs) if len(pairs) >= _FEWEST_PAIRS_OF_A_SEED else None


class _Epoch(NamedTuple):
    seconds: float
    passes: float


class _Pair(NamedTuple):
    own: _Epoch
    reference: _Epoch

    @property
    def disturbance(self) -> float:
        """The ratio of times beyond that of passes: an epoch with more second gradients is not disturbed."""
        return (self.own.seconds / self.own.passes) / (self.reference.seconds / self.reference.passes)

    def cost(self, low: float, high: float) -> float:
        """The ratio of times, with the disturbance clipped to this range."""
        return min(max(self.disturbance, low), high) * self.own.passes / self.reference.passes


def _ratio(pairs: Sequence[_Pair]) -> float:
    tenths = statistics.quantiles([pair.disturbance for pair in pairs], n=10)
    return 1 / statistics.fmean(pair.cost(tenths[0], tenths[-1]) for pair in pairs)


def _pairs(runs: Iterable[FinishedRun], references: Iterable[FinishedRun]) -> list[_Pair]:
    """A run's epochs, each with the reference's epoch of the same turn."""
    known = {key: epoch for cell in references for key, epoch in _timed(cell)}
    return [_Pair(epoch, known[key]) for cell in runs for key, epoch in _timed(cell) if key in known]


def _timed(cell: FinishedRun) -> list[tuple[tuple[int, str], _Epoch]]:
    """The epochs that ran in a turn, with their mean passes per step."""
    epochs = []
    steps = samples = 0
    for line in cell.epochs:
        if line.get("turn") is not None and line["step"] > steps:
            passes = 1 + (line["samples"] - samples) / (line["step"] - steps)
            epochs.append(((cell.seed, line["turn"]), _Epoch(line["seconds"], passes)))
        steps, samples = line["step"], line["samples"]
    return epochs


def _mean_ais(cells: Sequence[FinishedRun]) -> float:
    return statistics.fmean(cell.summary["ais"] for cell in cells)
