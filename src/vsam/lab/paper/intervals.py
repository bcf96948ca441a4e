"""Means over seeds with their 95 % intervals, by Student's t and without scipy."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

__all__ = ["Interval", "difference", "mean_interval", "t_quantile"]

_CONFIDENCE = 0.95
_NUM_PIECES = 400


@dataclass(frozen=True)
class Interval:
    """A mean and where it lies with 95 % confidence, if what varies over seeds is near normal.

    Args:
        mean: the estimate.
        low: lower end.
        high: upper end.
        n: how many numbers it rests on; of two samples that are not paired, the smaller one.
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
    return _around(statistics.fmean(values), error, len(values) - 1, len(values), is_paired=False)


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """How much larger `ours` are than `theirs`, both by seed.

    Where two seeds or more are shared, the differences within those seeds are taken; else the means are compared as
    those of independent samples of unequal variance (Welch). None where there are too few values for either.
    """
    shared = sorted(ours.keys() & theirs.keys())
    if len(shared) >= 2:
        found = mean_interval([ours[seed] - theirs[seed] for seed in shared])
        assert found is not None
        return Interval(found.mean, found.low, found.high, found.n, is_paired=True)
    if min(len(ours), len(theirs)) < 2:
        return None
    return _welch(list(ours.values()), list(theirs.values()))


def _welch(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    samples = (ours, theirs)
    mean = statistics.fmean(ours) - statistics.fmean(theirs)
    squares = [statistics.variance(values) / len(values) for values in samples]
    total = sum(squares)
    weights = sum(square**2 / (len(values) - 1) for square, values in zip(squares, samples, strict=True))
    n = min(len(ours), len(theirs))
    freedom = total**2 / weights if weights else n - 1
    return _around(mean, math.sqrt(total), freedom, n, is_paired=False)


def _around(mean: float, error: float, freedom: float, n: int, *, is_paired: bool) -> Interval:
    reach = t_quantile(_CONFIDENCE, freedom) * error
    return Interval(mean, mean - reach, mean + reach, n, is_paired)


@cache
def t_quantile(confidence: float, freedom: float) -> float:
    """The t for which P(|T| ≤ t) = confidence.

    Args:
        confidence: in (0, 1).
        freedom: degrees of freedom ν ≥ 1, whole or not.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}.")
    if not freedom >= 1:
        raise ValueError(f"freedom must be at least 1, got {freedom}: an interval needs two values.")
    low, high = 0.0, 1.0
    while _share_within(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _share_within(t: float, freedom: float) -> float:
    """P(|T| ≤ t); with T = √ν tan θ the density is cos^(ν−1) θ, which Simpson's rule integrates to near rounding."""
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    width = math.atan(t / math.sqrt(freedom)) / _NUM_PIECES
    weights = (1 if i in (0, _NUM_PIECES) else 4 if i % 2 else 2 for i in range(_NUM_PIECES + 1))
    total = math.fsum(weight * math.cos(i * width) ** (freedom - 1) for i, weight in enumerate(weights))
    return 2 * constant * total * width / 3
