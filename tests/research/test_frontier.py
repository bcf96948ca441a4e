"""The frontier: the same number of trials for each entry, on images that nobody trains or tests on, and its page."""

from collections import Counter

import pytest

from research.frontier import confirming, entries, figures, notes, points, rules, trials
from vsam.lab.recipes.load import load_recipe


def test_each_entry_tries_the_same_number_of_settings():
    counted = {entry.name: len(entry.tried) for entry in entries() if entry.method != "sgd"}
    assert counted.pop("sam") == 5  # the reference, which more trials can only make stronger
    assert set(counted.values()) == {3}
    (_, first), *others, (_, largest) = trials("small", 1).items()
    assert _counts(first) == {**counted, "sam": 5}
    for name, part in others:
        names = {name for name in _named(name) if not name.startswith("sgd")}
        assert _counts(part) == {name: 5 if name == "sam" else 3 for name in names}
    assert _counts(largest) == {"sam": 3, "vsam-budget-1.2": 3}


def test_what_is_run_elsewhere_is_an_entry_of_the_first_part():
    everybody = {entry.name for entry in entries()}
    assert rules()["primary"]["part"] == rules()["parts"][0]
    assert set(rules()["part"]) < set(rules()["parts"])
    for part in rules()["parts"][1:]:
        assert set(_named(part)) < everybody
        assert {entry.name for entry in entries(part)} == set(_named(part))
        assert {"sgd", "sgd-2", "sam", "vsam-budget-1.2"} <= set(_named(part))
        assert set(rules()["part"].get(part, {}).get("try", {})) <= set(_named(part))


def test_the_largest_part_has_three_seeds_at_most():
    for asked, expected in [(1, 1), (5, 3)]:
        *_, largest = confirming("small", asked).values()
        assert len({recipe.seed for recipe in largest}) == expected


def test_trials_differ_from_what_they_choose_for_in_images_and_seeds():
    seeds = {recipe.seed for part in trials("small", 2).values() for recipe in part}
    fresh = {recipe.seed for part in confirming("small", 5).values() for recipe in part}
    assert seeds == {200, 201}
    assert fresh == {300, 301, 302, 303, 304}
    for part in trials("small", 1).values():
        assert all(recipe.data.held_out and recipe.role == "trial" for recipe in part)
    for part in confirming("small", 1).values():
        assert not any(recipe.data.held_out for recipe in part)


def test_an_entry_changes_only_its_own_settings():
    shipped = load_recipe("cifar10-small-noisy")
    by_name = {entry.name: entry for entry in entries()}
    found = by_name["vsam-budget-1.1"].recipe(shipped, {"rho": 0.15, "budget.gamma": 0.95}, seed=7)
    assert (found.label, found.seed, found.rho) == ("vsam-budget-1.1", 7, 0.15)
    assert (found.budget.budget, found.budget.gamma, found.epochs) == (0.1, 0.95, shipped.epochs)
    changed = {"method", "variant", "seed", "rho", "budget"}
    assert found.model_dump(exclude=changed) == shipped.model_dump(exclude=changed)
    assert by_name["sgd-2"].recipe(shipped, {}, seed=0).epochs == 2 * shipped.epochs
    assert by_name["sgd"].recipe(shipped, {}, seed=0).label == "sgd"


def test_what_was_chosen_is_among_what_was_tried():
    for part in rules()["chosen"]:
        by_name = {entry.name: entry for entry in entries(part)}
        for name, settings in rules()["chosen"][part].items():
            assert settings in by_name[name].tried, (part, name)


def _named(part):
    return rules()["part"].get(part, {}).get("entries", rules()["elsewhere"])


def _counts(part):
    return Counter(recipe.label.rpartition("-try-")[0] for recipe in part)


PART = "cifar10-small-noisy"


def row(label, method, accuracies, steps=100, cost=1.0):
    return {
        "recipe": PART,
        "data": "cifar10",
        "model": "resnet8",
        "noise": 0.3,
        "label": label,
        "method": method,
        "steps": steps,
        "ideal_ratio": 2 / cost,
        "accuracy": sum(accuracies) / len(accuracies),
        "accuracies": accuracies,
        "seed_list": list(range(300, 300 + len(accuracies))),
    }


ROWS = [
    row("sgd", "sgd", [30.0, 31.0, 32.0]),
    row("sgd-2", "sgd", [29.0, 30.0, 31.0], steps=200),
    row("sam", "sam", [40.0, 41.0, 42.0], cost=2),
    row("vsam-budget-1.2", "vsam-budget", [39.9, 41.2, 41.8], cost=1.2),
    row("sam-part-1.05", "sam-part", [35.0, 36.5, 36.0], cost=1.047),
]


def test_costs_are_passes_in_units_of_sgds_run():
    found = {point.name: point.cost for point in points(ROWS, PART)}
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


def test_the_page_has_a_table_by_cost_and_the_primary_comparison():
    text = notes({"study": "frontier", "rows": ROWS})
    assert "| vsam-budget-1.2 | 1.20 | 41.0 ± 1.0 | 3 | -0.0 (-0.6 to +0.5) | 100 % | reached |" in text
    assert "The aim is reached." in text
    without = [one for one in ROWS if one["label"] != "vsam-budget-1.2"]
    assert "Not run yet." in notes({"study": "frontier", "rows": without})


def test_the_best_trial_of_each_entry_is_chosen_once_all_are_there():
    found = [row(f"sam-5-try-{i}", "sam-5", [accuracy]) for i, accuracy in enumerate((40.0, 42.0, 41.0))]
    assert "rho = 0.4" in notes({"study": "trials", "rows": found})
    assert "[chosen.cifar10-small-noisy.sam-5]" in notes({"study": "trials", "rows": found})
    assert "rho" not in notes({"study": "trials", "rows": found[:2]})


def test_there_is_a_figure_for_every_part():
    rows = [*ROWS, *({**one, "recipe": "clean"} for one in ROWS)]
    assert list(figures({"study": "frontier", "rows": rows})) == [f"frontier-{PART}", "frontier-clean"]
    assert figures({"study": "trials", "rows": rows}) == {}


def test_a_fraction_of_a_gain_that_may_be_none_is_not_shown():
    rows = [*ROWS[:2], row("sam", "sam", [30.1, 31.2, 31.9], cost=2), *ROWS[3:]]
    assert all(point.kept is None for point in points(rows, PART))
    assert all(point.kept is not None for point in points(ROWS, PART))
