"""Medians with their spread and confidence intervals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Spread", "median_interval", "ratio_interval", "spread"]

RESAMPLES = 1000
Interval = tuple[float, float]


@dataclass(frozen=True)
class Spread:
    """A median, the quartiles of the values, and a 95 % interval of the median."""

    median: float
    low: float
    high: float
    interval: Interval

    def to_dict(self, scale: float = 1.0) -> dict[str, object]:
        """The numbers in another unit."""
        values = asdict(self)
        interval = [scale * end for end in self.interval]
        return {**{name: scale * values[name] for name in ("median", "low", "high")}, "interval": interval}


def spread(values: Sequence[float]) -> Spread:
    """The spread of at least one value."""
    low, median, high = np.percentile(values, [25, 50, 75]).tolist()
    return Spread(median, low, high, median_interval(values))


def median_interval(values: Sequence[float]) -> Interval:
    """The bootstrap 95 % interval of the median."""
    return _middle(_medians(values, np.random.default_rng(0)))


def ratio_interval(values: Sequence[float], others: Sequence[float]) -> Interval | None:
    """The bootstrap 95 % interval of median(values) / median(others); None if the divisor may be zero."""
    generator = np.random.default_rng(0)
    divisors = _medians(others, generator)
    return None if divisors.min() <= 0 else _middle(_medians(values, generator) / divisors)


def _medians(values: Sequence[float], generator: np.random.Generator) -> NDArray[np.float64]:
    medians: NDArray[np.float64] = np.median(generator.choice(values, (RESAMPLES, len(values))), axis=1)
    return medians


def _middle(found: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(found, [2.5, 97.5]).tolist()
    return low, high
