"""What is written of a search: a recipe that trains, a header that does not overclaim, tables and a picture."""

import csv
import io
import json

import pytest
from matplotlib.image import imread

from lab.tune.plans import QUICK_CHANGES, quick_plan
from vsam.lab.recipes.load import load_recipe
from vsam.lab.tune.best import to_recipe
from vsam.lab.tune.picture import accuracy_against_settings
from vsam.lab.tune.plan import make_plan
from vsam.lab.tune.results import Result, best_first, count_states, standard_error, to_csv, to_json


def make(number, accuracy, rho=0.1, state="complete", loss=1.0, **others):
    settings = {"rho": rho, "vsam.alpha": 0.3, "vsam.gamma": 0.5}
    numbers = {"samples": 12.0, "steps": 40, "seconds": 60.0, "device": "a machine"}
    return Result(number, state, settings, accuracy, 3, loss, **(numbers | others))


RESULTS = [
    make(0, 60.0, 0.2),
    make(1, 70.0, 0.3, loss=1.2),
    make(2, 99.0, 0.4, "pruned"),
    make(3, 70.0, 0.0512, loss=1.1),
    Result(4, "failed", {"rho": 0.5, "vsam.alpha": 0.3, "vsam.gamma": 0.5}, None, 0, error="The loss is nan"),
    make(5, 68.0, 0.06),
]


def written(plan, results=RESULTS):
    return to_recipe(plan, plan.command(6), results, 200)


def test_the_best_is_completed_with_the_smaller_loss_of_equals():
    assert [result.number for result in best_first(RESULTS)] == [3, 1, 5, 0]
    assert count_states(RESULTS) == "6 trials: 4 complete, 1 pruned, 1 failed"


def test_the_recipe_is_the_searched_one_with_the_best_settings(tmp_path):
    plan = make_plan("fashion-mini", changes=("epochs=7",))
    (tmp_path / "best.toml").write_text(written(plan))
    recipe = load_recipe(str(tmp_path / "best.toml"))
    assert recipe.name == "fashion-mini-tuned"
    assert (recipe.rho, recipe.vsam.alpha, recipe.vsam.gamma) == (0.0512, 0.3, 0.5)
    changes = ("epochs=7", "rho=0.0512", "vsam.alpha=0.3", "vsam.gamma=0.5", "name=fashion-mini-tuned")
    assert recipe == load_recipe("fashion-mini", changes=changes)
    small = load_recipe(str(tmp_path / "best.toml"), tiny=True)
    assert small == load_recipe("fashion-mini", tiny=True, changes=(*changes[:-1], "name=fashion-mini-tuned-tiny"))


def test_a_recipe_without_a_tiny_table_gets_none(tmp_path):
    source = tmp_path / "mine.toml"
    source.write_text('model = "resnet8"\nepochs = 2\nbatch = 8\nlr = 0.1\ndata = { name = "fashion-mini" }\n')
    assert "[tiny" not in written(make_plan(str(source)))


def test_the_header_says_how_and_how_far_to_believe_it():
    plan = quick_plan()
    header = " ".join(line.lstrip("# ") for line in written(plan).splitlines() if line.startswith("#"))
    changes = " ".join(f"--set {change}" for change in QUICK_CHANGES)
    for part in (
        f"vsam tune fashion-mini --tiny {changes} --method vsam --trials 6 --seeds 1 --search rho=0.02:0.5:log,",
        "6 trials: 4 complete, 1 pruned, 1 failed.",
        "trial 3 with 70.00 % on 200 held-out training images",
        "one run",
        "12 second gradients in 40 steps: rho=0.0512, vsam.alpha=0.3, vsam.gamma=0.5",
        "own settings, trial 0, reached 60.00 %",
        "Runner-up: trial 1, 0.00 points behind: rho=0.3",
        "standard error of about 3.2 points",
        "a single seed",
        "the best of 4 looks better than it is",
        "a machine",
        "5.0 minutes",
    ):
        assert part in header


def test_the_header_of_several_seeds_and_of_the_recipes_own_settings():
    text = " ".join(written(quick_plan(seeds=3), RESULTS[:1]).replace("\n#", " ").split())
    assert "the mean of 3 runs" in text
    assert "These are the recipe's own settings." in text
    assert "Runner-up" not in text
    assert "a single seed" not in text


def test_settings_outside_the_ranges_are_not_called_the_recipes_own():
    assert "own settings" not in written(quick_plan("rho=0.9"))


def test_a_files_name_cannot_leave_the_comment(tmp_path):
    source = tmp_path / "a\nlr = 5 # \x07 b.toml"
    source.write_text(written(quick_plan()))
    plan = make_plan(str(source), changes=("name=mine",))
    (tmp_path / "best.toml").write_text(written(plan))
    assert load_recipe(str(tmp_path / "best.toml")).lr == 0.1


@pytest.mark.parametrize(("accuracy", "images", "error"), [(50.0, 100, 5.0), (90.0, 900, 1.0), (100.0, 10, 0.0)])
def test_the_standard_error_is_the_binomials(accuracy, images, error):
    assert standard_error(accuracy, images) == pytest.approx(error)


def test_the_tables_hold_every_trial():
    plan = quick_plan()
    record = json.loads(to_json(plan, plan.command(6), RESULTS, 200))
    assert record["best"] == 3
    assert record["search"][0] == "rho=0.02:0.5:log"
    assert [trial["state"] for trial in record["trials"]] == [result.state for result in RESULTS]
    assert record["trials"][4]["error"] == "The loss is nan"
    rows = list(csv.DictReader(io.StringIO(to_csv(plan, RESULTS))))
    assert [float(row["rho"]) for row in rows] == [result.settings["rho"] for result in RESULTS]
    assert rows[3]["accuracy"] == "70.0"
    assert rows[4]["accuracy"] == ""
    assert list(rows[0])[:6] == ["number", "state", "rho", "vsam.alpha", "vsam.gamma", "accuracy"]


def draw(plan, results=RESULTS):
    return accuracy_against_settings(plan, results, 200)


@pytest.mark.slow
def test_the_picture_shows_each_kind_of_trial():
    whole = draw(quick_plan())
    assert imread(io.BytesIO(whole)).std() > 0.05
    assert draw(quick_plan()) == whole, "a finished search must not change it"
    for missing in (2, 4):
        assert draw(quick_plan(), [result for result in RESULTS if result.number != missing]) != whole


@pytest.mark.parametrize("search", ["rho=0.02:0.5:log", "rho=0.02:0.5,vsam.alpha=0:1,vsam.gamma=0:1,lr=0.1:1"])
def test_the_picture_has_room_for_few_and_many_settings(search):
    results = [make(number, 50.0 + number, 0.1) for number in range(3)]
    for result in results:
        result.settings["lr"] = 0.2
    image = imread(io.BytesIO(draw(quick_plan("name=$x_$", search=search), results)))
    assert image.shape[1] > 700
