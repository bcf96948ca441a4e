"""Means, deviations and 95 % intervals: the lab's only place for statistics."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = ["Interval", "deviation", "difference", "mean", "mean_interval", "quantiles", "signed", "standard_error"]

_CONFIDENCE = 0.95

mean = statistics.fmean
quantiles = statistics.quantiles


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % confidence interval by Student's t.

    Args:
        mean: the estimate.
        low: the interval's lower end.
        high: its upper end.
        n: the sample size. Of two unpaired samples, the smaller one.
        is_paired: whether differences were taken seed by seed.
    """

    mean: float
    low: float
    high: float
    n: int
    is_paired: bool = False

    @property
    def is_decided(self) -> bool:
        """True if the interval excludes 0: a difference is then significant at 5 %."""
        return self.sign != 0

    @property
    def sign(self) -> int:
        """1 or -1 if the interval lies on that side of 0, and 0 if it is not decided."""
        return (self.low > 0) - (self.high < 0)

    def text(self, digits: int) -> str:
        """Return the mean and half of the interval, as in +1.2 ± 0.4."""
        return f"{signed(self.mean, digits)} ± {self.high - self.mean:.{digits}f}"

    def starred(self, digits: int) -> str:
        """Return the text, with a star if the interval excludes 0."""
        return f"{self.text(digits)}{'*' if self.is_decided else ''}"


def signed(value: float, digits: int) -> str:
    """Return the rounded value with its sign, and 0 as +0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation, 0 for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Return the mean with its interval, or None for fewer than two values."""
    if len(values) < 2:
        return None
    error = deviation(values) / math.sqrt(len(values))
    return _around(mean(values), error, len(values) - 1, len(values))


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """Return how much larger `ours` are than `theirs`, both by seed.

    With at least two common seeds, the differences are paired by seed. Otherwise the means are compared as independent
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
    squares = [deviation(values) ** 2 / len(values) for values in samples]
    weights = sum(square**2 / (len(values) - 1) for square, values in zip(squares, samples, strict=True))
    freedom = sum(squares) ** 2 / weights if weights else n - 1
    return _around(mean(samples[0]) - mean(samples[1]), math.sqrt(sum(squares)), freedom, n)


def standard_error(accuracy: float, num_images: int) -> float:
    """Return the standard error of an accuracy in percent that was measured on `num_images` images."""
    share = min(max(accuracy / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / num_images)


def _around(mean: float, error: float, freedom: float, n: int) -> Interval:
    from scipy import stats  # takes a second to import

    reach = float(stats.t.ppf((1 + _CONFIDENCE) / 2, freedom)) * error
    return Interval(mean, mean - reach, mean + reach, n)
