"""Downsampling of long curves: each point is the mean of a bucket, and keeps its lowest and highest value."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["MOST_POINTS", "Buckets", "backfill", "bucket", "is_usable", "merge", "width_for"]

MOST_POINTS = 250
_LARGEST = 1e100  # sums of larger values may overflow

_Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Buckets:
    """Values over positions 1 … total, grouped into buckets of `width` positions; empty buckets are left out.

    Args:
        total: the last position.
        width: positions per bucket; the last bucket may be narrower.
        index: of each bucket, from 0.
        count: how many values it has, from one or several runs.
        sums: their sum.
        low: the lowest.
        high: the highest.
    """

    total: int
    width: int
    index: NDArray[np.int64]
    count: _Numbers
    sums: _Numbers
    low: _Numbers
    high: _Numbers

    @property
    def middle(self) -> _Numbers:
        """The middle of each bucket; the position itself if buckets are one wide."""
        return self.all_middles[self.index]

    @property
    def all_middles(self) -> _Numbers:
        """Likewise for all buckets, including empty ones."""
        first = np.arange(1, self.total + 1, self.width)
        return (first + np.minimum(first + self.width - 1, self.total)) / 2

    @property
    def mean(self) -> _Numbers:
        """The mean of each bucket's values."""
        return self.sums / self.count

    @property
    def share(self) -> _Numbers:
        """For all buckets, including empty ones: the fraction of positions with a value, from 0 to 1 for one run."""
        starts = np.arange(0, self.total, self.width)
        found = np.zeros(len(starts))
        found[self.index] = self.count
        return found / np.minimum(self.width, self.total - starts)


def is_usable(value: float) -> bool:
    """Whether a value can be drawn: neither NaN nor infinite nor absurdly large."""
    return abs(value) < _LARGEST


def width_for(total: int, most: int = MOST_POINTS) -> int:
    """The narrowest bucket width for which `total` positions need at most `most` points; at least 1."""
    return max(1, -(-total // most))


def bucket(positions: ArrayLike, values: ArrayLike, total: int, most: int = MOST_POINTS) -> Buckets:
    """Group values into buckets; unusable values and positions outside 1 … total are left out.

    Args:
        positions: integers from 1.
        values: one per position.
        total: the last possible position, at least 1.
        most: the maximum number of points, at least 1.
    """
    x, y = np.asarray(positions, dtype=np.float64), np.asarray(values, dtype=np.float64)
    kept = (np.abs(y) < _LARGEST) & (x >= 1) & (x <= total)
    width = width_for(total, most)
    places = (x[kept].astype(np.int64) - 1) // width
    return _gather(total, width, places, np.ones(len(places)), y[kept], y[kept], y[kept])


def backfill(positions: ArrayLike, values: ArrayLike, last: int) -> tuple[_Numbers, _Numbers]:
    """A value for every position from the first to `last`: that of the next known position, else the last one's."""
    x, y = np.asarray(positions, dtype=np.float64), np.asarray(values, dtype=np.float64)
    known = (np.abs(y) < _LARGEST) & (x <= last)
    x, y = x[known], y[known]
    if not len(x):
        return x, y
    order = np.argsort(x, kind="stable")
    every = np.arange(x.min(), last + 1)
    return every, y[order][np.minimum(np.searchsorted(x[order], every), len(x) - 1)]


def merge(parts: Sequence[Buckets]) -> Buckets:
    """Merge the buckets of several runs of the same length."""
    first = parts[0]
    assert all((part.total, part.width) == (first.total, first.width) for part in parts)
    columns = ("index", "count", "sums", "low", "high")
    return _gather(
        first.total, first.width, *(np.concatenate([getattr(part, name) for part in parts]) for name in columns)
    )


def _gather(total: int, width: int, places: NDArray[np.int64], *columns: _Numbers) -> Buckets:
    """Buckets from the bucket index of each value, and the columns to reduce."""
    index, inverse = np.unique(places, return_inverse=True)
    gathered = []
    for column, join, start in zip(
        columns, (np.add, np.add, np.minimum, np.maximum), (0, 0, np.inf, -np.inf), strict=True
    ):
        gathered.append(np.full(len(index), float(start)))
        join.at(gathered[-1], inverse, column)
    return Buckets(total, width, index, *gathered)
