"""Intervals against values worked out by hand."""

import random

import pytest
from scipy import stats

from vsam.lab.statistics import Interval, difference, mean_interval, signed


def test_the_interval_of_one_two_three():
    found = mean_interval([1.0, 2.0, 3.0])
    assert found is not None
    # Mean 2, deviation 1, error 1/√3 = 0.57735, t = 4.30265: 2.48414 to either side.
    assert (found.mean, found.n, found.is_paired) == (2.0, 3, False)
    assert (found.low, found.high) == pytest.approx((-0.48414, 4.48414), abs=1e-5)


def test_zero_has_a_plus():
    assert [signed(value, 1) for value in (-0.04, 0.0, 0.04, -0.05001, 1.0)] == ["+0.0", "+0.0", "+0.0", "-0.1", "+1.0"]
    assert Interval(-0.04, -0.34, 0.26, 3).text(1) == "+0.0 ± 0.3"


def test_one_value_has_no_interval():
    assert mean_interval([1.0]) is None
    assert difference({0: 1.0, 1: 2.0}, {0: 1.0}) is None
    assert difference({}, {}) is None


def test_differences_are_taken_within_shared_seeds():
    ours, theirs = {0: 10.0, 1: 20.0, 2: 30.0, 7: 99.0}, {2: 29.0, 1: 18.0, 0: 7.0}
    found = difference(ours, theirs)
    # Differences 3, 2, 1; seed 7 has no partner.
    assert found is not None
    assert (found.mean, found.n, found.is_paired) == (2.0, 3, True)
    assert (found.low, found.high) == pytest.approx((-0.48414, 4.48414), abs=1e-5)


def test_seeds_that_are_not_shared_are_compared_as_samples_of_their_own():
    found = difference({0: 1.0, 1: 2.0, 2: 3.0}, {3: 0.0, 4: 4.0, 5: 8.0, 6: 0.0})
    # Means 2 and 3; variances 1 and 14.6667; squared errors 1/3 and 3.66667, 4 together: error 2.
    # Freedom 16/((1/3)²/2 + 3.66667²/3) = 3.52727, between 3 and 4: t between 2.776 and 3.182.
    assert found is not None
    assert (found.mean, found.n, found.is_paired) == (-1.0, 3, False)
    reach = found.high - found.mean
    assert found.mean - found.low == pytest.approx(reach)
    freedom = 16 / ((1 / 9) / 2 + (11 / 3) ** 2 / 3)
    assert reach / 2 == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)
    assert 2.776 < reach / 2 < 3.182


def test_numbers_without_spread_have_an_interval_without_width():
    found = difference({0: 1.0, 1: 1.0}, {2: 3.0, 3: 3.0})
    assert found is not None
    assert (found.low, found.high) == (-2.0, -2.0)


def test_nineteen_of_twenty_intervals_hold_the_truth():
    draw = random.Random(0)
    held = 0
    for _ in range(600):
        found = mean_interval([draw.gauss(5, 2) for _ in range(3)])
        assert found is not None
        held += found.low <= 5 <= found.high
    assert 0.925 <= held / 600 <= 0.975
