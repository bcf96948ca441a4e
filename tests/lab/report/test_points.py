"""Points of accuracy against speed: bars come from runs that were timed together, and from no others."""

import statistics

import pytest

from lab.helpers import make_row
from vsam.lab.report.points import speed_deviations
from vsam.lab.runs.finished import FinishedRun

ROWS = [make_row("sam"), make_row("sgd", ais_ratio_to_sam=2.0)]


def cell(label, seed, seconds, call="a", epochs=6):
    turns = [
        {"seconds": seconds, "turn": f"{call}-{seed}-{i}", "step": 10 * (i + 1), "samples": 0} for i in range(epochs)
    ]
    return FinishedRun(label, label, seed, None, {"ais": 10.0 / seconds}, turns)


def test_bars_are_the_deviation_of_the_seeds_ratios():
    cells = [cell("sam", seed, 2.0) for seed in (0, 1)] + [cell("sgd", 0, 1.0), cell("sgd", 1, 0.8)]
    assert speed_deviations(ROWS, cells) == {"sam": 0.0, "sgd": pytest.approx(statistics.stdev([2.0, 2.5]))}


@pytest.mark.parametrize("other", [{"call": "b"}, {"epochs": 4}])
def test_runs_that_took_no_turns_together_have_no_bars(other):
    cells = [cell("sam", seed, 2.0) for seed in (0, 1)] + [cell("sgd", seed, 1.0 + seed, **other) for seed in (0, 1)]
    assert speed_deviations(ROWS, cells) == {"sam": 0.0}
