"""Medians with their spread, and how sure they are."""

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles

__all__ = ["Spread", "bootstrap", "ratio_interval", "spread"]

RESAMPLES = 1000
Interval = tuple[float, float]


@dataclass(frozen=True)
class Spread:
    """A median, the quartiles of the values, and a 95 % interval of the median itself."""

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
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Spread(median(values), low, high, bootstrap(values, median))


def bootstrap(values: Sequence[float], statistic: Callable[[Sequence[float]], float], seed: int = 0) -> Interval:
    """The 95 % interval of a statistic over resampled values."""
    generator = random.Random(seed)
    found = sorted(statistic(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return _middle(found)


def ratio_interval(values: Sequence[float], others: Sequence[float], seed: int = 0) -> Interval | None:
    """The 95 % interval of median(values) / median(others), each resampled; None where the divisor may be zero."""
    generator = random.Random(seed)
    found = []
    for _ in range(RESAMPLES):
        divisor = median(generator.choices(others, k=len(others)))
        if divisor <= 0:
            return None
        found.append(median(generator.choices(values, k=len(values))) / divisor)
    return _middle(sorted(found))


def _middle(found: Sequence[float]) -> Interval:
    edge = len(found) // 40
    return found[edge], found[-1 - edge]
