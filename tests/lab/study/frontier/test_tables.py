"""What the frontier says of its rows."""

import pytest

from vsam.lab.study.frontier.figure import frontier_figure
from vsam.lab.study.frontier.tables import best_trials, frontier_tables, points

PART = "cifar10-small-noisy"


def row(label, method, accuracies, steps=100, price=1.0):
    return {
        "recipe": PART,
        "data": "cifar10",
        "model": "resnet8",
        "noise": 0.3,
        "label": label,
        "method": method,
        "steps": steps,
        "ideal_ratio": 2 / price,
        "accuracy": sum(accuracies) / len(accuracies),
        "accuracies": accuracies,
        "seed_list": list(range(300, 300 + len(accuracies))),
    }


ROWS = [
    row("sgd", "sgd", [30.0, 31.0, 32.0]),
    row("sgd-2", "sgd", [29.0, 30.0, 31.0], steps=200),
    row("sam", "sam", [40.0, 41.0, 42.0], price=2),
    row("vsam-budget-1.2", "vsam-budget", [39.9, 41.2, 41.8], price=1.2),
    row("sam-part-1.05", "sam-part", [35.0, 36.5, 36.0], price=1.047),
]


def test_prices_are_passes_in_units_of_sgds_run():
    found = {point.name: point.price for point in points(ROWS, PART)}
    expected = {"sgd": 1.0, "sgd-2": 2.0, "sam": 2.0, "vsam-budget-1.2": 1.2, "sam-part-1.05": 1.047}
    assert found == pytest.approx(expected)
    assert list(found) == ["sgd", "sam-part-1.05", "vsam-budget-1.2", "sam", "sgd-2"]


def test_the_aim_is_one_standard_error_of_the_paired_difference():
    found = {point.name: point for point in points(ROWS, PART)}
    near = found["vsam-budget-1.2"]
    assert near.to_sam.mean == pytest.approx(-0.1 / 3)
    assert near.reaches_aim is True
    assert found["sam-part-1.05"].reaches_aim is False
    assert found["sam"].reaches_aim is None
    assert found["sam-part-1.05"].kept == pytest.approx((35.8333 - 31) / 10, rel=1e-3)


def test_a_difference_of_exactly_one_standard_error_reaches_the_aim_and_a_little_more_does_not():
    # Differences -d, 0, -d, 0: the mean is -d/2, the standard error d/sqrt(12).
    def reaches(shift):
        rows = [row("sgd", "sgd", [0.0] * 4), row("sam", "sam", [40.0] * 4)]
        rows.append(row("sam-5", "sam-5", [40 + shift - 0.5, 40 + shift + 0.5, 40 + shift - 0.5, 40 + shift + 0.5]))
        return next(point for point in points(rows, PART) if point.name == "sam-5").reaches_aim

    error = 1 / 12**0.5
    assert reaches(-error + 1e-9) is True
    assert reaches(-error - 1e-6) is False


def test_the_page_has_a_table_by_price_and_the_primary_comparison():
    text = frontier_tables(ROWS)
    assert "| vsam-budget-1.2 | 1.20 | 41.0 ± 1.0 | 3 | -0.0 (-0.6 to +0.5) | 100 % | reached |" in text
    assert "The aim is reached." in text
    without = [one for one in ROWS if one["label"] != "vsam-budget-1.2"]
    assert "Not run yet." in frontier_tables(without)


def test_the_best_trial_of_each_rival_is_chosen_once_all_are_there():
    trials = [row(f"sam-5-try-{i}", "sam-5", [accuracy]) for i, accuracy in enumerate((40.0, 42.0, 41.0))]
    assert "rho = 0.4" in best_trials(trials)
    assert "[chosen.cifar10-small-noisy.sam-5]" in best_trials(trials)
    assert "rho" not in best_trials(trials[:2])


def test_the_figure_has_every_rival_of_every_part():
    others = ({"recipe": "clean", "noise": None}, {"recipe": "larger", "noise": None, "model": "resnet20"})
    figure = frontier_figure([*ROWS, *({**one, **changes} for changes in others for one in ROWS)])
    titles = ["CIFAR-10, 30 % wrong labels", "CIFAR-10", "CIFAR-10, ResNet-20"]
    assert [axes.get_title() for axes in figure.axes] == titles
    assert len(figure.axes[0].containers) == len(ROWS)
    filled = [container.lines[0].get_fillstyle() for container in figure.axes[0].containers]
    assert filled.count("none") == sum(one["steps"] != 100 for one in ROWS)
    assert not frontier_figure([]).axes


def test_a_share_of_a_gain_that_may_be_none_is_not_shown():
    rows = [*ROWS[:2], row("sam", "sam", [30.1, 31.2, 31.9], price=2), *ROWS[3:]]
    assert all(point.kept is None for point in points(rows, PART))
    assert all(point.kept is not None for point in points(ROWS, PART))
