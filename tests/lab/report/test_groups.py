"""What is meaned together: only runs of the same settings, each seed once."""

import re
import statistics
from types import SimpleNamespace

import pytest

from lab.helpers import CPU, quick_recipe
from lab.report.made import make_comparison, make_run
from vsam.lab.data.validation import hold_out
from vsam.lab.paper.numbers import reference
from vsam.lab.recipes.load import load_recipe
from vsam.lab.report import write_report
from vsam.lab.report.find import find_runs
from vsam.lab.report.groups import group_runs, labels_of
from vsam.lab.report.page.page import make_page
from vsam.lab.report.page.results import published_numbers
from vsam.lab.report.read import read_drawn
from vsam.lab.report.scale import describe_scale, scale_line
from vsam.lab.runs.train import load_data
from vsam.lab.tune.trial import TrialRuns


def groups_in(folder):
    return group_runs(read_drawn(path) for path in find_runs([folder]))


def test_a_comparison_is_one_group(tmp_path):
    [group], outside = groups_in(make_comparison(tmp_path, seeds=(0, 1, 2)))
    assert outside == []
    assert group.title == "resnet8 on cifar10"
    assert group.labels == ["sgd", "sam", "vsam"]
    assert [row.seeds for row in group.rows] == [3, 3, 3]
    accuracies = [run.summary["accuracy"] for run in group.runs if run.label == "vsam"]
    assert group.rows[2].accuracy == pytest.approx(statistics.fmean(accuracies))
    assert group.rows[2].accuracy_std == pytest.approx(statistics.stdev(accuracies))


def test_curves_are_the_mean_over_seeds(tmp_path):
    [group], _ = groups_in(make_comparison(tmp_path))
    runs = [run.curves["test_accuracy"] for run in group.runs if run.label == "sam"]
    curve = group.curve("sam", "test_accuracy")
    assert curve.mean == pytest.approx((runs[0].mean + runs[1].mean) / 2)
    assert (curve.low == runs[0].mean).all()
    assert (curve.high == runs[1].mean).all()


def test_other_recipes_data_and_shared_settings_are_other_groups(tmp_path):
    make_run(tmp_path / "a", recipe="cifar10-small")
    make_run(tmp_path / "b", recipe="cifar100-small")
    make_run(tmp_path / "c", changes=("data.noise=0.3",))
    groups, _ = groups_in(tmp_path)
    assert [group.title for group in groups] == [
        "resnet8 on cifar10, noise=0",
        "resnet8 on cifar10, noise=0.3",
        "resnet8 on cifar100",
    ]
    assert len({group.slug for group in groups}) == 3


def test_other_settings_of_a_method_are_other_rows(tmp_path):
    for alpha in (0.5, 0.05, 0.1):
        make_run(tmp_path / f"{alpha}", "vsam", changes=(f"vsam.alpha={alpha}",))
    [group], _ = groups_in(tmp_path)
    assert group.labels == ["vsam (alpha=0.05)", "vsam (alpha=0.1)", "vsam (alpha=0.5)"]
    assert [row.seeds for row in group.rows] == [1, 1, 1]


def test_settings_that_a_method_does_not_read_change_nothing(tmp_path):
    make_run(tmp_path / "a", "sgd", 0, changes=("rho=0.1", "vsam.alpha=0.1"))
    make_run(tmp_path / "b", "sgd", 1, changes=("rho=0.2", "checkpoint_seconds=5"))
    [group], _ = groups_in(tmp_path)
    assert [(row.label, row.seeds) for row in group.rows] == [("sgd", 2)]


def test_a_copy_of_a_run_counts_once(tmp_path):
    make_run(tmp_path / "a", "sam", 0)
    make_run(tmp_path / "b", "sam", 0)
    [group], [copy] = groups_in(tmp_path)
    assert group.rows[0].seeds == 1
    assert "only that one counts" in copy.problems[0]
    assert str(tmp_path / "a") in copy.problems[0]


def test_a_finished_run_wins_over_its_unfinished_copy(tmp_path):
    make_run(tmp_path / "a", "sam", 0, finished=False)
    make_run(tmp_path / "b", "sam", 0)
    [group], [copy] = groups_in(tmp_path)
    assert ([run.path.name for run in group.runs], copy.path.name) == (["b"], "a")


def test_runs_of_other_length_are_not_meaned(tmp_path):
    make_run(tmp_path / "a", "sam", 0)
    make_run(tmp_path / "b", "sam", 1, steps_per_epoch=9)
    [group], [other] = groups_in(tmp_path)
    assert group.rows[0].seeds == 1
    assert "another number of steps" in other.problems[0]


def test_unfinished_runs_are_drawn_but_not_counted(tmp_path):
    make_comparison(tmp_path, seeds=(0,))
    make_run(tmp_path / "sam/seed-1", "sam", 1, finished=False)
    begun = make_run(tmp_path / "sam/seed-2", "sam", 2, finished=False)
    (begun / "metrics.jsonl").unlink()
    [group], _ = groups_in(tmp_path)
    assert [row.seeds for row in group.rows] == [1, 1, 1]
    assert [run.seed for run, _ in group.loose_curves("test_accuracy")] == [1]
    assert group.curve("sam", "test_accuracy").count.tolist() == [1, 1, 1]
    assert len(group.runs) == 5


def test_labels_are_in_the_order_of_methods_and_numbers(tmp_path):
    for number, name in enumerate(("zzz", "vsam", "sam-10", "sam-5", "sgd")):
        path = make_run(tmp_path / str(number), "sam", recipe="cifar10-small" if number % 2 else "cifar100-small")
        for file in ("config.toml", "summary.json"):
            text = (path / file).read_text()
            (path / file).write_text(text.replace('method = "sam"', f'method = "{name}"').replace('"sam"', f'"{name}"'))
    groups, _ = groups_in(tmp_path)
    assert labels_of(groups) == ["sgd", "sam-5", "sam-10", "vsam", "zzz"]


def make_trial(path, recipe="cifar10-small", **options):
    """A run as `vsam tune` leaves it."""
    name = load_recipe(recipe).name
    return make_run(path, "vsam", recipe=recipe, changes=(f"name={name}-tune",), data="cifar10-validation", **options)


def test_a_searchs_trials_are_called_what_they_are(tmp_path):
    make_run(tmp_path / "a", "vsam")
    make_trial(tmp_path / "b")
    make_trial(tmp_path / "c", seed=1, finished=False)
    make_run(tmp_path / "d", "vsam", changes=("name=my-tune",))
    ours, search, named_so = groups_in(tmp_path)[0]
    assert [group.is_validation for group in (ours, search, named_so)] == [False, True, False]
    assert search.title == "resnet8 on cifar10, validation: held-out training images"
    assert len(search.runs) == 2
    assert dict(describe_scale(search))["Images"] == (
        "cifar10: 1,600 of 50,000 for training, 400 other training images held out for validation, no test images"
    )
    assert "1,600 training images" in scale_line(search)


@pytest.mark.slow
def test_no_sentence_of_a_search_says_test(tmp_path):
    make_trial(tmp_path / "runs/a")
    [group], _ = groups_in(tmp_path)
    page = re.sub(
        r"<script>.*?</script>|<style>.*?</style>|<pre>.*?</pre>", "", make_page([group], []), flags=re.DOTALL
    )
    said = page.replace("no test images", "").replace(str(tmp_path), "")
    assert not re.search(r"\btest", said, re.IGNORECASE)
    assert "Accuracy: last epoch, on the held-out training images" in said
    assert "validation accuracy of the last epoch" in said
    assert "Validation loss" in said
    files = write_report([tmp_path / "runs"], tmp_path / "report.html")
    drawn = [path.read_text(encoding="utf-8") for path in files.figures if path.suffix == ".svg"]
    assert not any("test accuracy" in picture or "test loss" in picture for picture in drawn)


def test_a_search_never_has_the_papers_numbers(tmp_path):
    make_trial(tmp_path / "a", recipe="cifar10-resnet18", epochs=200)
    make_run(tmp_path / "b", "vsam", recipe="cifar10-resnet18", epochs=200)
    papers, search = groups_in(tmp_path)[0]
    assert set(published_numbers(papers)) == {"vsam"}
    assert published_numbers(search) == {}
    assert reference(search.runs[0].recipe, "vsam") is None


def test_a_trial_that_vsam_tune_begins_is_known_as_one(tmp_path):
    plan = SimpleNamespace(recipe=quick_recipe("method=vsam"), seeds=1)
    data = hold_out(load_data(plan.recipe, None, CPU))
    TrialRuns(plan, {}, tmp_path, data, CPU).close()
    [group], _ = groups_in(tmp_path)
    assert group.is_validation
    assert (
        f"{len(data.train_labels):,} of 4,000 for training, {len(data.test_labels)} other"
        in dict(describe_scale(group))["Images"]
    )


def test_settings_that_this_version_does_not_understand_still_group(tmp_path):
    make_run(tmp_path / "a", "sam", 0)
    strange = make_run(tmp_path / "b", "sam", 1)
    text = (strange / "config.toml").read_text().replace('variant = "paper"', 'variant = "of the future"')
    (strange / "config.toml").write_text(text)
    [group], _ = groups_in(tmp_path)
    assert group.rows[0].seeds == 2
    assert "vsam.variant" in group.runs[1].problems[0]
