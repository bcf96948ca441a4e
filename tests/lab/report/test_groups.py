"""Only runs of the same settings share a row, and each seed counts once."""

import json
import statistics

import pytest

from lab.report.made import accuracy_at, make_comparison, make_run, read_groups, write_lines
from vsam.lab.errors import UserError
from vsam.lab.report.groups import METRICS, find_runs, labels_of

ACCURACY = METRICS[0]
AVERAGED = METRICS[1]


def metric(key):
    return next(one for one in METRICS if one.key == key)


def test_a_comparison_is_one_group(tmp_path):
    [group], outside = read_groups(make_comparison(tmp_path, seeds=(0, 1, 2)))
    assert outside == []
    assert group.title == "resnet8 on cifar10"
    assert list(group.runs) == ["sgd", "sam", "vsam"]
    assert [row.seeds for row in group.rows] == [3, 3, 3]
    accuracies = [accuracy_at("vsam", seed, 2) for seed in range(3)]
    assert group.rows[2].accuracy == pytest.approx(statistics.fmean(accuracies))


def test_a_curve_is_the_mean_over_seeds_with_a_band_from_the_lowest_to_the_highest(tmp_path):
    [group], _ = read_groups(make_comparison(tmp_path))
    curve = next(curve for curve in group.curves(ACCURACY) if curve.label == "sam")
    seeds = [[accuracy_at("sam", seed, epoch) for epoch in range(3)] for seed in (0, 1)]
    assert curve.x.tolist() == [1, 2, 3]
    assert curve.y.tolist() == pytest.approx([statistics.fmean(pair) for pair in zip(*seeds, strict=True)])
    assert (curve.low.tolist(), curve.high.tolist()) == tuple(map(pytest.approx, seeds))


def test_a_long_curve_is_downsampled_to_means(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", "sam", epochs=50, steps_per_epoch=20))
    [curve] = group.curves(metric("grad_norm"))
    assert 100 <= len(curve.x) <= 120
    assert statistics.fmean(curve.y) == pytest.approx(2, abs=0.01)  # the steps cycle through 1, 2 and 3


def test_values_that_cannot_be_drawn_are_left_out(tmp_path):
    run = make_run(tmp_path / "run", "sam")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines[1]["test_loss"] = float("nan")
    lines[2]["test_loss"] = 1e300
    write_lines(run / "metrics.jsonl", lines)
    [group], _ = read_groups(run)
    assert [curve.x.tolist() for curve in group.curves(metric("test_loss"))] == [[1]]


def test_steps_outside_of_the_run_are_not_drawn(tmp_path):
    run = make_run(tmp_path / "run", "sam", epochs=1, steps_per_epoch=4)
    write_lines(run / "steps.jsonl", [{"step": step, "grad_norm": 1.0} for step in (0.5, 2, 4, 1e300)])
    [group], _ = read_groups(run)
    assert [curve.x.tolist() for curve in group.curves(metric("grad_norm"))] == [[2, 4]]


def test_averaged_weights_have_a_curve_and_a_column(tmp_path):
    run = make_run(tmp_path / "run", "sam", averaged_accuracy=71.5, averaged_best=72.0)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    write_lines(run / "metrics.jsonl", [line | {"averaged_accuracy": 70.0} for line in lines])
    [group], _ = read_groups(run)
    assert group.curves(AVERAGED)[0].y.tolist() == [70.0] * 3
    assert group.rows[0].averaged == 71.5


def test_sampled_steps_are_fractions(tmp_path):
    [group], _ = read_groups(make_comparison(tmp_path, seeds=(0,), epochs=3, steps_per_epoch=100))
    found = group.sampled()
    assert list(found) == ["sam", "vsam"]
    assert found["sam"].tolist() == pytest.approx([1.0] * 120)
    assert found["vsam"].mean() == pytest.approx(1 / 3)


def test_other_recipes_data_and_shared_settings_are_other_groups(tmp_path):
    make_run(tmp_path / "a", recipe="cifar10-small")
    make_run(tmp_path / "b", recipe="cifar100-small")
    make_run(tmp_path / "c", changes=("data.noise=0.3",))
    groups, _ = read_groups(tmp_path)
    assert [group.title for group in groups] == [
        "resnet8 on cifar10, noise=0",
        "resnet8 on cifar10, noise=0.3",
        "resnet8 on cifar100",
    ]
    assert len({group.slug for group in groups}) == 3


def test_recipes_of_the_same_data_and_network_are_told_apart(tmp_path):
    make_run(tmp_path / "a", recipe="cifar10-small")
    make_run(tmp_path / "b", recipe="cifar10-small-noisy")
    groups, _ = read_groups(tmp_path)
    assert [group.title for group in groups] == [
        "resnet8 on cifar10, recipe cifar10-small",
        "resnet8 on cifar10, recipe cifar10-small-noisy",
    ]


def test_other_settings_of_a_method_are_other_rows(tmp_path):
    for alpha in (0.5, 0.05, 0.1):
        make_run(tmp_path / f"{alpha}", "vsam", changes=(f"vsam.alpha={alpha}",))
    [group], _ = read_groups(tmp_path)
    assert [row.label for row in group.rows] == ["vsam (alpha=0.05)", "vsam (alpha=0.1)", "vsam (alpha=0.5)"]


def test_settings_that_a_method_does_not_read_change_nothing(tmp_path):
    make_run(tmp_path / "a", "sgd", 0, changes=("rho=0.1", "vsam.alpha=0.1"))
    make_run(tmp_path / "b", "sgd", 1, changes=("rho=0.2", "checkpoint_seconds=5"))
    [group], _ = read_groups(tmp_path)
    assert [(row.label, row.seeds) for row in group.rows] == [("sgd", 2)]


def test_the_base_that_ran_names_its_row(tmp_path):
    make_comparison(tmp_path, ("sgd", "sam"), changes=("optimizer=adamw",))
    groups, _ = read_groups(tmp_path)
    assert labels_of(groups) == ["adamw", "sam"]
    assert groups[0].rows[1].to_base is not None


def test_a_copy_of_a_run_counts_once_and_a_finished_one_wins(tmp_path):
    make_run(tmp_path / "a", "sam", 0, finished=False)
    make_run(tmp_path / "b", "sam", 0)
    make_run(tmp_path / "c", "sam", 0)
    [group], outside = read_groups(tmp_path)
    assert [run.path.name for run in group.runs["sam"]] == ["b"]
    assert sorted(run.path.name for run, _ in outside) == ["a", "c"]
    assert all(str(tmp_path / "b") in why for _, why in outside)


def test_runs_of_another_length_are_left_out(tmp_path):
    make_run(tmp_path / "a", "sam", 0)
    make_run(tmp_path / "b", "sam", 1, steps_per_epoch=9)
    [group], [(other, why)] = read_groups(tmp_path)
    assert group.rows[0].seeds == 1
    assert other.path.name == "b"
    assert "27" in why


def test_unfinished_runs_are_drawn_but_not_counted(tmp_path):
    make_comparison(tmp_path, seeds=(0,))
    make_run(tmp_path / "sam/seed-1", "sam", 1, finished=False)
    (make_run(tmp_path / "sam/seed-2", "sam", 2, finished=False) / "metrics.jsonl").unlink()
    [group], _ = read_groups(tmp_path)
    assert [row.seeds for row in group.rows] == [1, 1, 1]
    assert [(curve.label, curve.is_loose) for curve in group.curves(ACCURACY)] == [
        ("sgd", False),
        ("sam", False),
        ("sam", True),
        ("vsam", False),
    ]
    assert len(group.all_runs) == 5


def test_labels_are_in_the_order_of_methods_and_numbers(tmp_path):
    for number, name in enumerate(("zzz", "vsam", "sam-10", "sam-5", "sgd")):
        path = make_run(tmp_path / str(number), "sam", recipe="cifar10-small" if number % 2 else "cifar100-small")
        for file in ("config.toml", "summary.json"):
            text = (path / file).read_text()
            (path / file).write_text(text.replace('method = "sam"', f'method = "{name}"').replace('"sam"', f'"{name}"'))
    groups, _ = read_groups(tmp_path)
    assert labels_of(groups) == ["sgd", "sam-5", "sam-10", "vsam", "zzz"]


def test_trials_of_a_search_are_a_group_of_their_own(tmp_path):
    make_run(tmp_path / "a", "vsam")
    make_run(tmp_path / "b", "vsam", changes=("role=trial",), split="validation")
    make_run(tmp_path / "c", "vsam", 1, changes=("role=trial",), finished=False)
    test, search = read_groups(tmp_path)[0]
    assert (test.images, search.images) == ("test", "validation")
    assert len(search.all_runs) == 2


def test_broken_runs_are_in_no_group(tmp_path):
    make_run(tmp_path / "good")
    (make_run(tmp_path / "bad", seed=1) / "summary.json").write_text("{")
    [group], [(run, why)] = read_groups(tmp_path)
    assert len(group.all_runs) == 1
    assert run.path.name == "bad"
    assert "summary.json" in why


def test_folders_are_searched_at_any_depth_once(tmp_path):
    deep = make_run(tmp_path / "a/b/c")
    (tmp_path / "link").symlink_to(deep)
    (tmp_path / "a/circle").symlink_to(tmp_path)
    assert [path.resolve() for path in find_runs([tmp_path, deep])] == [deep]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no run in"):
        find_runs([tmp_path / "empty"])
    with pytest.raises(UserError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])
