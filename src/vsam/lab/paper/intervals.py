"""Means over seeds with 95 % intervals (Student's t)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy import stats

__all__ = ["Interval", "difference", "mean_interval"]

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % confidence interval, assuming that seeds vary about normally.

    Args:
        mean: the estimate.
        low: lower end.
        high: upper end.
        n: the sample size; of two unpaired samples, the smaller one.
        is_paired: whether differences were taken seed by seed.
    """

    mean: float
    low: float
    high: float
    n: int
    is_paired: bool = False


def mean_interval(values: Sequence[float]) -> Interval | None:
    """The mean with its interval; None for fewer than two values."""
    if len(values) < 2:
        return None
    error = statistics.stdev(values) / math.sqrt(len(values))
    return _around(statistics.fmean(values), error, len(values) - 1, len(values))


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """How much larger `ours` are than `theirs`, both by seed.

    If they share at least two seeds, the differences are paired by seed; else the means are compared as independent
    samples of unequal variance (Welch). None if there are too few values for either.
    """
    shared = sorted(ours.keys() & theirs.keys())
    found = mean_interval([ours[seed] - theirs[seed] for seed in shared])
    if found is not None:
        return replace(found, is_paired=True)
    n = min(len(ours), len(theirs))
    if n < 2:
        return None
    samples = list(ours.values()), list(theirs.values())
    squares = [statistics.variance(values) / len(values) for values in samples]
    weights = sum(square**2 / (len(values) - 1) for square, values in zip(squares, samples, strict=True))
    freedom = sum(squares) ** 2 / weights if weights else n - 1
    means = [statistics.fmean(values) for values in samples]
    return _around(means[0] - means[1], math.sqrt(sum(squares)), freedom, n)


def _around(mean: float, error: float, freedom: float, n: int) -> Interval:
    reach = float(stats.t.ppf((1 + _CONFIDENCE) / 2, freedom)) * error
    return Interval(mean, mean - reach, mean + reach, n)
