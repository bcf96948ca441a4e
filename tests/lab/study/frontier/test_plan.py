"""The frontier's runs: the same number of trials for each rival, on images that nobody trains or tests on."""

from collections import Counter

from vsam.lab.recipes.load import load_recipe
from vsam.lab.study.frontier.plan import chosen_settings, confirming_parts, rivals, rules, trial_parts


def test_each_rival_tries_the_same_number_of_settings(tmp_path):
    counted = {rival.name: len(rival.tried) for rival in rivals() if rival.method != "sgd"}
    assert counted.pop("sam") == 5  # the reference, which more trials can only make stronger
    assert set(counted.values()) == {3}
    first, *others, largest = trial_parts("small", 1, tmp_path)
    assert _counts(first) == {**counted, "sam": 5}
    for part in others:
        names = {name for name in _named(part.name) if not name.startswith("sgd")}
        assert _counts(part) == {name: 5 if name == "sam" else 3 for name in names}
    assert _counts(largest) == {"sam": 3, "vsam-budget-1.2": 3}


def test_what_is_run_elsewhere_is_a_rival_of_the_first_part():
    everybody = {rival.name for rival in rivals()}
    assert rules()["primary"]["part"] == rules()["parts"][0]
    assert set(rules()["part"]) < set(rules()["parts"])
    for part in rules()["parts"][1:]:
        assert set(_named(part)) < everybody
        assert {rival.name for rival in rivals(part)} == set(_named(part))
        assert {"sgd", "sgd-2", "sam", "vsam-budget-1.2"} <= set(_named(part))
        assert set(rules()["part"].get(part, {}).get("try", {})) <= set(_named(part))


def test_the_largest_part_has_three_seeds_at_most(tmp_path):
    for asked, expected in [(1, 1), (5, 3)]:
        largest = confirming_parts("small", asked, tmp_path)[-1]
        assert len({recipe.seed for recipe in largest.recipes}) == expected


def test_trials_differ_from_what_they_choose_for_in_images_and_seeds(tmp_path):
    seeds = {recipe.seed for part in trial_parts("small", 2, tmp_path) for recipe in part.recipes}
    fresh = {recipe.seed for part in confirming_parts("small", 5, tmp_path) for recipe in part.recipes}
    assert seeds == {200, 201}
    assert fresh == {300, 301, 302, 303, 304}
    for part in trial_parts("small", 1, tmp_path):
        assert all(recipe.data.held_out and recipe.role == "trial" for recipe in part.recipes)
    for part in confirming_parts("small", 1, tmp_path):
        assert not any(recipe.data.held_out for recipe in part.recipes)


def test_a_rival_changes_only_its_own_settings(tmp_path):
    shipped = load_recipe("cifar10-small-noisy")
    by_name = {rival.name: rival for rival in rivals()}
    found = by_name["vsam-budget-1.1"].recipe(shipped, {"rho": 0.15, "budget.gamma": 0.95}, seed=7)
    assert (found.label, found.seed, found.rho) == ("vsam-budget-1.1", 7, 0.15)
    assert (found.budget.budget, found.budget.gamma, found.epochs) == (0.1, 0.95, shipped.epochs)
    changed = {"method", "variant", "seed", "rho", "budget"}
    assert found.model_dump(exclude=changed) == shipped.model_dump(exclude=changed)
    assert by_name["sgd-2"].recipe(shipped, {}, seed=0).epochs == 2 * shipped.epochs
    assert by_name["sgd"].recipe(shipped, {}, seed=0).label == "sgd"


def test_what_was_chosen_is_among_what_was_tried():
    for part in rules()["chosen"]:
        by_name = {rival.name: rival for rival in rivals(part)}
        for name, settings in chosen_settings(part).items():
            assert settings in by_name[name].tried, (part, name)


def _named(part):
    return rules()["part"].get(part, {}).get("rivals", rules()["elsewhere"])


def _counts(part):
    return Counter(recipe.label.rpartition("-try-")[0] for recipe in part.recipes)
