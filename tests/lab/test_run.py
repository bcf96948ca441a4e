"""The one reader of run folders: each file once, and numbers that no run can have are damage."""

import json
import os
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.helpers import CPU, quick_recipe
from vsam.lab.compare import compare
from vsam.lab.run import read_run, run_path

SMALL = ("data.train=32", "epochs=1")
_counts: list[Counter[str]] = []


def _watch(event, arguments):
    if _counts and event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb", None):
        _counts[-1][Path(arguments[0]).name] += 1


sys.addaudithook(_watch)


@contextmanager
def opened():
    """Count how often files of each name are opened for reading."""
    _counts.append(Counter())
    try:
        yield _counts[-1]
    finally:
        _counts.clear()


def test_a_finished_comparison_reads_each_file_once_and_needs_no_data(tmp_path):
    recipes = [quick_recipe(*SMALL, f"method={method}") for method in ("sgd", "sam", "vsam")]
    compare(recipes, tmp_path, None, CPU)
    with opened() as counts:
        done, failures = compare(recipes, tmp_path, "/nowhere", CPU)
        assert all(run.is_finished for run in done)
    assert (len(done), failures) == (3, [])
    names = ("config.toml", "summary.json", "metrics.jsonl", "steps.jsonl")
    assert {name: counts[name] for name in names} == dict(zip(names, (3, 3, 3, 0), strict=True))


def test_a_run_is_what_its_files_say(run):
    found = read_run(run)
    assert (found.state, found.problem, found.method, found.seed) == ("finished", "", "vsam", 0)
    assert (found.num_epochs, found.num_steps, found.steps_done) == (2, 12, 12)
    assert [line["epoch"] for line in found.epochs] == [0, 1]
    assert len(found.steps) == found.summary["samples"]
    assert found.summary["parameters"] > 50_000
    assert (found.summary["train_images"], found.summary["available_images"]) == (96, 4000)
    assert not found.is_validation


def test_an_unfinished_run_is_no_problem(begun):
    found = read_run(begun)
    assert (found.state, found.problem, found.summary) == ("unfinished", "", {})
    assert (found.num_steps, found.steps_done) == (12, 6)


@pytest.mark.parametrize(
    ("changes", "label", "method"),
    [
        (["method=sgd", "optimizer=adamw"], "adamw", "adamw"),
        (["method=sgd"], "sgd", "sgd"),
        (["method=sam", "optimizer=adamw"], "sam", "sam"),
        (["method=sgd", "optimizer=adamw", "variant=low"], "adamw-low", "adamw"),
    ],
)
def test_a_run_without_a_method_is_called_after_its_base(tmp_path, changes, label, method):
    recipe = quick_recipe(*SMALL, *changes)
    (run,), _ = compare([recipe], tmp_path, None, CPU)
    assert (run.label, run.method, run.summary["method"]) == (label, method, method)
    assert run.path == run_path(tmp_path, recipe) == tmp_path / f"fashion-mini-tiny/{label}/seed-0"


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"samples": -1},
        {"accuracy": 101},
        {"accuracy": "97"},
        {"best": float("nan")},
        {"seconds": -1},
        {"ais": float("inf")},
        {"cost": 0.5},
        {"cost": None},
        {"method": None},
    ],
    ids=str,
)
def test_a_summary_that_no_run_can_have_is_damage(run, change):
    path = run / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    found = read_run(run)
    assert (found.state, found.summary) == ("broken", {})
    assert f"{next(iter(change))} is" in found.problem


def test_nothing_was_begun_in_a_folder_that_is_not_there(tmp_path):
    assert read_run(tmp_path / "none").state == "new"


def test_metrics_that_were_cut_are_a_problem_of_a_finished_run(run):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    found = read_run(run)
    assert (found.state, len(found.epochs)) == ("finished", 1)
    assert "metrics.jsonl is damaged at line 2" in found.problem


@pytest.mark.parametrize("name", ["config.toml", "summary.json", "metrics.jsonl"])
def test_a_pipe_among_the_files_is_not_waited_for(run, name):
    (run / name).unlink()
    os.mkfifo(run / name)
    assert "not a regular file" in read_run(run).problem


@pytest.mark.parametrize(
    "text", ["epochs = ", "", f"[{'.'.join('a' * 3000)}]", "method = 3", "\0", "x = " + "[" * 9999]
)
def test_settings_that_cannot_be_used_are_damage(run, text):
    (run / "config.toml").write_text(text)
    found = read_run(run)
    assert (found.state, found.settings) == ("broken", {})
    assert "config.toml" in found.problem
