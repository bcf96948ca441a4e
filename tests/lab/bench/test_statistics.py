"""Medians, quartiles and intervals."""

import random

import pytest

from vsam.lab.bench.statistics import median_interval, ratio_interval, spread


def test_spread() -> None:
    found = spread([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (found.median, found.low, found.high) == (3.0, 2.0, 4.0)
    assert found.interval[0] <= 3.0 <= found.interval[1]
    assert found.to_dict(10)["median"] == 30.0


def test_spread_of_one_value() -> None:
    found = spread([2.0])
    assert (found.median, found.low, found.high, found.interval) == (2.0, 2.0, 2.0, (2.0, 2.0))


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    generator = random.Random(0)
    hits = 0
    for _ in range(40):
        low, high = median_interval([generator.gauss(1.0, 0.3) for _ in range(40)])
        hits += low <= 1.0 <= high
    assert 34 <= hits <= 40


def test_ratio() -> None:
    low, high = ratio_interval([2.0] * 9, [4.0] * 9) or (0.0, 0.0)
    assert low == high == pytest.approx(0.5)


def test_no_ratio_to_what_may_be_nothing() -> None:
    assert ratio_interval([1.0, 2.0], [-1.0, 1.0]) is None
