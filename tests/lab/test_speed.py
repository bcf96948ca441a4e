"""Speeds: epochs of one turn are paired, the extremes are left out, and what was not timed together says so."""

import json

import pytest

from vsam.lab.errors import RunError
from vsam.lab.speed import Cell, read_cell, relative_speed


def cell(seconds, seed=0, ais=10.0, call="a"):
    epochs = [{"seconds": second, "turn": call and f"{call}-{i}"} for i, second in enumerate(seconds)]
    return Cell("m", "m", seed, None, {"ais": ais}, epochs)


def test_noise_that_hits_both_cancels():
    noise = [1.0, 5.0, 2.0, 9.0] * 6
    speed = relative_speed([cell([2 * x for x in noise])], [cell(noise)])
    assert speed.ratio == pytest.approx(0.5)
    assert speed.quartiles == pytest.approx((0.5, 0.5))


def test_extreme_pairs_are_left_out():
    steady = [1.0] * 40
    disturbed = [2.0] * 36 + [200.0] * 4
    assert relative_speed([cell(disturbed)], [cell(steady)]).ratio == pytest.approx(0.5)
    disturbed = [2.0] * 35 + [200.0] * 5
    assert relative_speed([cell(disturbed)], [cell(steady)]).ratio < 0.2


def test_the_ratio_is_one_of_times_and_not_a_mean_of_ratios():
    own = [1.0] * 10 + [2.0] * 10
    kept = 8 * 1.0 + 8 * 2.0
    assert relative_speed([cell(own)], [cell([1.0] * 20)]).ratio == pytest.approx(16 / kept)


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


def test_only_a_finished_run_is_a_cell(tmp_path):
    with pytest.raises(RunError, match="no finished run"):
        read_cell(tmp_path)
    summary = {"method": "sam", "seed": 3, "accuracy": 1.0}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0}\n')
    assert read_cell(tmp_path) == Cell("sam", "sam", 3, tmp_path, summary, [{"epoch": 0}])
