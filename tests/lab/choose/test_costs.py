"""What methods cost follows from the steps that were timed."""

import pytest

from vsam.lab.choose.costs import list_costs
from vsam.lab.choose.timing import Times
from vsam.lab.methods import METHODS

TIMES = Times(base=0.1, forward=0.3, sampled=2.1, plain=1.1, sampled_with_memory=2.4, plain_with_memory=1.2, rounds=9)


def test_every_method_has_its_cost_and_the_cheapest_is_first():
    costs = list_costs(TIMES, 1000, 0.25)
    assert {cost.method for cost in costs} == {method.name for method in METHODS}
    assert [cost.time for cost in costs] == sorted(cost.time for cost in costs)


@pytest.mark.parametrize(
    ("method", "price", "time", "kept", "extra"),
    [
        ("sgd", 1.0, 1.0, 0, 0),
        ("sam", 2.0, 2.1, 0, 1000),
        ("sam-5", 1.2, 1.3, 0, 1000),
        ("vsam-budget", 1.25, 1.5, 1000, 2000),
        ("looksam-5", 1.2, 1.44, 1000, 2000),
        ("friendly-sam", 2.0, 2.4, 1000, 3000),
        ("msam", 1.0, 1.1, 0, 1000),
        ("mesa", 1.3, 1.3, 1000, 0),
        ("esam", 1.9, 1.8, 0, 1000),
    ],
)
def test_time_and_memory_of_a_method(method, price, time, kept, extra):
    (cost,) = (one for one in list_costs(TIMES, 1000, 0.25) if one.method == method)
    assert (cost.price, cost.kept, cost.extra) == (price, kept, extra)
    assert cost.time == pytest.approx(time)
    assert cost.speed_to_sam == pytest.approx(2.1 / time)


def test_what_is_known_only_after_a_run_is_marked():
    marked = {cost.method for cost in list_costs(TIMES, 1000, 0.25) if cost.is_estimate}
    assert marked == {"vsam", "vsam-a", "ae-sam", "esam"}
