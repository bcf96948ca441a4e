"""Buckets against slow loops: means, extremes and shares are those of all values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsam.lab.report.downsample import backfill, bucket, merge, width_for

values = st.floats(-1e6, 1e6)
points = st.lists(st.tuples(st.integers(1, 60), values), min_size=1, max_size=80)


def slow(pairs, width):
    found = {}
    for position, value in pairs:
        found.setdefault((position - 1) // width, []).append(value)
    return dict(sorted(found.items()))


@given(points, st.integers(1, 70))
def test_buckets_hold_the_mean_and_the_extremes(pairs, most):
    buckets = bucket([x for x, _ in pairs], [y for _, y in pairs], 60, most)
    expected = slow(pairs, width_for(60, most))
    assert buckets.index.tolist() == list(expected)
    assert len(buckets.index) <= most
    assert buckets.low.tolist() == [min(found) for found in expected.values()]
    assert buckets.high.tolist() == [max(found) for found in expected.values()]
    assert buckets.mean == pytest.approx([math.fsum(found) / len(found) for found in expected.values()], abs=1e-6)


@given(st.lists(points, min_size=1, max_size=4), st.integers(1, 70))
def test_merged_buckets_are_those_of_all_values(runs, most):
    merged = merge([bucket([x for x, _ in run], [y for _, y in run], 60, most) for run in runs])
    together = [pair for run in runs for pair in run]
    whole = bucket([x for x, _ in together], [y for _, y in together], 60, most)
    for name in ("index", "count", "low", "high"):
        assert getattr(merged, name).tolist() == getattr(whole, name).tolist()
    assert merged.mean == pytest.approx(whole.mean, abs=1e-6)


def test_short_curves_are_kept_as_they_are():
    buckets = bucket([1, 2, 3], [5.0, 6.0, 7.0], 3)
    assert buckets.middle.tolist() == [1, 2, 3]
    assert buckets.mean.tolist() == [5, 6, 7]


@pytest.mark.parametrize(("total", "width"), [(1, 1), (250, 1), (251, 2), (500, 2), (78_200, 313)])
def test_the_width_keeps_the_points_below_the_limit(total, width):
    assert width_for(total) == width
    assert len(bucket(range(1, total + 1), [1.0] * total, total).index) <= 250


def test_middles_lie_in_their_buckets_and_the_last_may_be_narrower():
    assert bucket([1, 10], [0.0, 0.0], 10, 3).all_middles.tolist() == [2.5, 6.5, 9.5]
    assert bucket([10], [0.0], 10, 3).middle.tolist() == [9.5]


def test_the_share_counts_how_many_positions_hold_a_value():
    buckets = bucket([1, 2, 3, 9], [1.0] * 4, 10, 3)
    assert buckets.share.tolist() == [3 / 4, 0, 1 / 2]


def test_what_cannot_be_drawn_is_left_out():
    wrong = [math.nan, math.inf, -math.inf, 1e200]
    buckets = bucket([1, 2, 3, 4, 5, 0, 99], [*wrong, 2.0, 3.0, 4.0], 5)
    assert (buckets.index.tolist(), buckets.mean.tolist()) == ([4], [2.0])


def test_a_value_in_force_is_that_of_the_next_sampled_step():
    x, y = backfill([2, 5], [1.0, 3.0], 7)
    assert x.tolist() == [2, 3, 4, 5, 6, 7]
    assert y.tolist() == [1, 3, 3, 3, 3, 3]


def test_nothing_holds_where_nothing_is_known():
    x, _ = backfill([3, 4], [np.nan, np.nan], 9)
    assert len(x) == 0
