"""Flatness: ratios to SGD and rank correlations against numbers worked out otherwise, and the program itself."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from research.flatness import FILE, MEASURES, correlations, main, ratios_to_sgd, spearman


def minimum(value, error=0.0):
    return {"measures": {name: {"value": value, "error": error, "converged": True} for name in MEASURES}}


def row(label, values, accuracies=None, error=0.0):
    minima = [None if value is None else minimum(value, error) for value in values]
    return {
        "label": label,
        "seed_list": list(range(len(values))),
        "minima": minima,
        "accuracies": accuracies or [50.0] * len(values),
    }


def test_a_ratio_is_the_geometric_mean_within_seeds_with_students_interval():
    found = ratios_to_sgd([row("sgd", [10.0, 20.0, 40.0]), row("sam", [5.0, 9.0, 22.0])])["trace"]["sam"]
    logs = [math.log(5 / 10), math.log(9 / 20), math.log(22 / 40)]
    low, high = stats.t.interval(0.95, 2, np.mean(logs), stats.sem(logs))
    assert found["ratio"] == pytest.approx(math.exp(np.mean(logs)))
    assert (found["low"], found["high"]) == pytest.approx((math.exp(low), math.exp(high)))
    assert found["verdict"] == "flatter"


@pytest.mark.parametrize(
    ("values", "verdict"), [([30.0, 61.0, 120.0], "sharper"), ([5.0, 90.0, 40.0], "open"), ([1.0, None, None], "open")]
)
def test_a_verdict_needs_an_interval_on_one_side(values, verdict):
    found = ratios_to_sgd([row("sgd", [10.0, 20.0, 40.0]), row("sam", values)])["trace"]["sam"]
    assert found["verdict"] == verdict
    assert math.isinf(found["high"]) == (values[1] is None)


def test_what_is_not_above_its_error_is_left_out():
    rows = [row("sgd", [1.0, 1.0]), row("sam", [0.1, -0.1], error=0.2)]
    assert ratios_to_sgd(rows)["trace"] == {}
    assert ratios_to_sgd(rows[1:])["trace"] == {}  # no SGD


def test_spearman_is_scipys_and_its_interval_is_bonett_and_wrights():
    draw = np.random.default_rng(0)
    one = draw.normal(size=12)
    other = one + draw.normal(size=12)
    value, low, high = spearman(one, other)
    assert value == pytest.approx(stats.spearmanr(one, other).statistic)
    error = math.sqrt((1 + value**2 / 2) / 9)
    assert math.atanh(high) - math.atanh(value) == pytest.approx(1.959964 * error, rel=1e-5)
    assert low < value < high


def test_the_correlation_within_methods_does_not_see_the_differences_between_them():
    """Between the methods flatter is better, within each of them sharper is."""
    rows = [row("sgd", [10.0, 11.0, 12.0], [40.0, 41.0, 42.0]), row("sam", [1.0, 2.0, 3.0], [60.0, 61.0, 62.0])]
    found = correlations(rows)["trace"]
    assert found["value"] < 0
    assert found["within"] == pytest.approx(1.0)
    assert found["low"] <= found["value"] <= found["high"]


def test_few_runs_have_no_correlation_and_equal_ones_none_either():
    assert correlations([row("sgd", [1.0, 2.0])])["trace"] is None
    found = correlations([row("sgd", [1.0] * 6, [float(i) for i in range(6)])])["trace"]
    assert found["value"] == 0.0
    singles = [row(str(i), [float(i)], [float(i)]) for i in range(6)]
    assert correlations(singles)["trace"]["within"] is None


@pytest.mark.slow
def test_the_program_measures_every_run_once(tmp_path, monkeypatch):
    arguments = ["--scale", "tiny", "--out", str(tmp_path)]
    main(arguments)
    content = json.loads((tmp_path / "flatness.json").read_text())
    assert [one["label"] for one in content["rows"]] == ["sgd", "sam", "vsam", "vsam-budget"]
    for one in content["rows"]:
        (found,) = one["minima"]
        assert found["measures"].keys() >= MEASURES.keys()
        assert (found["settings"]["rho"], found["settings"]["samples"]) == (0.2, 32)
    assert [one["psf"] is not None for one in content["rows"]] == [False, False, True, False]
    page = (tmp_path / "flatness.md").read_text()
    for heading in ("fashion-mini-tiny: measures", "against SGD", "Rank correlation", "old PSF", "PSF against"):
        assert heading in page
    assert list((tmp_path / "figures").glob("flatness-fashion-mini-tiny-*.svg"))
    monkeypatch.setattr("research.flatness.open_trained", None)
    main(arguments)
    assert json.loads((tmp_path / "flatness.json").read_text()) == content
    next(tmp_path.rglob(f"sgd/seed-0/{FILE}")).unlink()
    with pytest.raises(TypeError):  # it would measure again
        main(arguments)
