"""Speeds: epochs of one turn are paired, the extremes are left out, and what was not timed together says so."""

import itertools
from pathlib import Path

import pytest

from vsam.lab.rows import relative_speed, seed_speed
from vsam.lab.run import Run


def cell(seconds, seed=0, ais=10.0, call="a", samples=None):
    counts = list(itertools.accumulate(samples or [0] * len(seconds)))
    epochs = [
        {"seconds": second, "turn": call and f"{call}-{i}", "step": 10 * (i + 1), "samples": counts[i]}
        for i, second in enumerate(seconds)
    ]
    return Run(Path("run"), settings={"seed": seed}, summary={"ais": ais}, epochs=epochs)


def test_noise_that_hits_both_cancels():
    noise = [1.0, 5.0, 2.0, 9.0] * 6
    speed = relative_speed([cell([2 * x for x in noise])], [cell(noise)])
    assert speed.ratio == pytest.approx(0.5)
    assert speed.quartiles == pytest.approx((0.5, 0.5))


def test_disturbed_epochs_are_drawn_in():
    steady = [1.0] * 40
    assert relative_speed([cell([2.0] * 37 + [200.0] * 3)], [cell(steady)]).ratio == pytest.approx(0.5)
    assert relative_speed([cell([2.0] * 37 + [0.01] * 3)], [cell(steady)]).ratio == pytest.approx(0.5)
    assert relative_speed([cell([2.0] * 40)], [cell([1.0] * 37 + [90.0] * 3)]).ratio == pytest.approx(0.5)
    assert relative_speed([cell([2.0] * 30 + [200.0] * 10)], [cell(steady)]).ratio < 0.1  # so much is no disturbance


def test_a_turn_on_a_slow_machine_weighs_no_more():
    slow = [10.0 if i < 10 else 1.0 for i in range(30)]
    own = [1.0 * x if i < 10 else 2.0 * x for i, x in enumerate(slow)]
    speed = relative_speed([cell(own, samples=[0] * 10 + [10] * 20)], [cell(slow)])
    assert speed.ratio == pytest.approx(30 / 50)


def test_costs_are_averaged_and_not_speeds():
    own = [1.0] * 10 + [2.0] * 10
    assert relative_speed([cell(own)], [cell([1.0] * 20)]).ratio == pytest.approx(20 / 30)


def test_epochs_with_more_second_gradients_are_no_disturbance():
    run = cell([2.0] * 4 + [1.0] * 36, samples=[10] * 4 + [0] * 36)
    speed = relative_speed([run], [cell([2.0] * 40, samples=[10] * 40)])
    assert speed.ratio == pytest.approx(80 / 44)
    disturbed = cell([2.0] * 4 + [1.0] * 33 + [50.0] * 3, samples=[10] * 4 + [0] * 36)
    assert relative_speed([disturbed], [cell([2.0] * 40, samples=[10] * 40)]).ratio == pytest.approx(80 / 44)


def test_only_epochs_of_one_seed_and_one_turn_are_paired():
    reference = [cell([1.0] * 20, seed=0), cell([10.0] * 20, seed=1)]
    runs = [cell([2.0] * 20, seed=0), cell([20.0] * 20, seed=1)]
    assert relative_speed(runs, reference).quartiles == pytest.approx((0.5, 0.5))


@pytest.mark.parametrize("call", ["b", None])
def test_runs_timed_apart_divide_their_speeds_and_have_no_quartiles(call):
    speed = relative_speed([cell([2.0] * 30, ais=30.0, call=call)], [cell([1.0] * 30, ais=40.0, call=call and "a")])
    assert (speed.ratio, speed.quartiles) == (0.75, None)


def test_nineteen_common_turns_are_too_few():
    assert relative_speed([cell([2.0] * 19)], [cell([1.0] * 19)]).quartiles is None
    assert relative_speed([cell([2.0] * 20)], [cell([1.0] * 20)]).quartiles is not None


def test_a_seeds_speed_counts_from_five_common_turns():
    own = [2.0, 2.0, 2.0, 2.0, 4.0]
    assert seed_speed(cell(own), cell([1.0] * 5)) == pytest.approx(5 / 12)
    assert seed_speed(cell(own[:4]), cell([1.0] * 4)) is None


def test_a_seeds_speed_is_the_tables_where_that_pairs_too():
    own, reference = cell([2.0 + 0.1 * i for i in range(20)]), cell([1.0] * 20)
    assert seed_speed(own, reference) == relative_speed([own], [reference]).ratio


@pytest.mark.parametrize("call", ["b", None])
def test_a_seeds_speed_needs_turns_in_common(call):
    assert seed_speed(cell([2.0] * 30, call=call), cell([1.0] * 30, call=call and "a")) is None
