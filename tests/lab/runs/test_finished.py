"""The one reader of run folders: each file once, one validation, and older folders too."""

import json
import os
import shutil
import sys
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lab.helpers import CPU, assert_same_run, open_run, quick_recipe
from lab.report.made import make_run
from vsam.lab.comparison.compare import compare
from vsam.lab.report.write import write_report
from vsam.lab.runs.facts import SOURCE, TRIAL
from vsam.lab.runs.finished import read_run
from vsam.lab.runs.folder import check_settings, run_path
from vsam.lab.study.run import run_study
from vsam.lab.study.study import Part, Study

OLDER = Path(__file__).parent / "older"
SMALL = ("data.train=32", "epochs=1")
_counts: list[Counter[str]] = []


def _watch(event, arguments):
    if _counts and event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb", None):
        _counts[-1][Path(arguments[0]).name] += 1


sys.addaudithook(_watch)


@contextmanager
def opened():
    """How often files of each name are opened for reading."""
    _counts.append(Counter())
    try:
        yield _counts[-1]
    finally:
        _counts.clear()


@pytest.fixture
def recipes():
    return [quick_recipe(*SMALL, f"method={method}") for method in ("sgd", "sam", "vsam")]


def test_a_finished_comparison_reads_each_file_once(tmp_path, recipes):
    with opened() as first:
        compare(recipes, tmp_path, None, CPU)
    assert max(first["summary.json"], first["config.toml"]) <= 3 * 3  # before, under the lock, and when it is done
    with opened() as again:
        done, failures = compare(recipes, tmp_path, None, CPU)
    assert (len(done), failures) == (3, [])
    assert {name: again[name] for name in ("config.toml", "summary.json", "metrics.jsonl")} == dict.fromkeys(
        ("config.toml", "summary.json", "metrics.jsonl"), 3
    )


def test_a_finished_study_reads_each_file_once(tmp_path, recipes):
    study = Study("own", "ours", lambda scale, seeds, runs: [Part("fashion-mini-tiny", tuple(recipes))])
    run_study(study, "tiny", 1, tmp_path, None, CPU)
    with opened() as counts:
        outcome = run_study(study, "tiny", 1, tmp_path, None, CPU)
        outcome.to_dict()
        outcome.tables()
    assert counts["summary.json"] == counts["config.toml"] == 3


def test_a_report_reads_each_file_once(tmp_path):
    for seed in range(3):
        make_run(tmp_path / f"runs/sam/seed-{seed}", "sam", seed)
    with opened() as counts:
        write_report([tmp_path / "runs"], tmp_path / "report.html", figures=False)
    for name in ("config.toml", "summary.json", "metrics.jsonl", "steps.jsonl"):
        assert counts[name] == 3


def test_a_run_is_not_asked_of_the_disk_whether_it_is_finished(tmp_path, recipes):
    compare(recipes[:1], tmp_path, None, CPU)
    run = read_run(run_path(tmp_path, recipes[0]))
    with opened() as counts:
        assert run.is_finished
        assert run.finished.summary["accuracy"] >= 0
    assert not counts


def test_facts_are_in_the_summary(tmp_path, recipes):
    compare(recipes[:1], tmp_path, None, CPU)
    summary = json.loads((run_path(tmp_path, recipes[0]) / "summary.json").read_text())
    assert (summary["train_images"], summary["available_images"], summary["test_images"]) == (32, 4000, 50)
    assert (summary["split"], summary["role"]) == ("test", "run")
    assert summary["parameters"] > 50_000
    assert summary["date"].endswith("+00:00")
    assert summary["environment"]["threads"] >= 1


@pytest.mark.parametrize(
    ("name", "role", "split", "images"),
    [("run", "run", "test", 320), ("source", SOURCE, "test", 320), ("trial", TRIAL, "validation", 256)],
)
def test_a_folder_from_before_there_were_facts_reads_all_the_same(name, role, split, images):
    run = read_run(OLDER / name)
    assert (run.state, run.problems, run.facts.role, run.facts.split) == ("finished", (), role, split)
    assert (run.facts.train_images, run.facts.available_images) == (images, 4000)
    assert run.facts.parameters == 75002
    check_settings(run, run.recipe)


def test_an_older_unfinished_trial_is_one_too(tmp_path):
    folder = shutil.copytree(OLDER / "trial", tmp_path / "trial")
    (folder / "summary.json").unlink()
    run = read_run(folder)
    assert (run.state, run.facts.role, run.facts.split) == ("unfinished", TRIAL, "validation")


SUMMARY = {"data": "d", "model": "m", "method": "sam", "seed": 0, "steps": 8, "samples": 8, "accuracy": 0, "best": 100}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"samples": -1},
        {"samples": 9},
        {"accuracy": -1},
        {"accuracy": 101},
        {"best": 101},
        {"seconds": -1},
        {"ais": 0},
        {"ais": float("inf")},
        {"price": 0.5},
        {"price": None},
        {"method": None},
    ],
)
def test_a_summary_that_no_run_can_have_is_none(tmp_path, change):
    path = make_run(tmp_path / "run", "sam")
    summary = {**SUMMARY, "seconds": 0, "ais": 0.5}
    (path / "summary.json").write_text(json.dumps(summary))
    run = read_run(path)
    assert (run.state, run.steps_done) == ("finished", 8)
    (path / "summary.json").write_text(json.dumps({**summary, **change}))
    run = read_run(path)
    assert (run.state, run.damage, run.summary) == ("broken", None, {})


def test_nothing_was_begun_in_a_folder_that_is_not_there(tmp_path):
    assert read_run(tmp_path / "none").state == "new"
    assert read_run(tmp_path / "none").damage is None


def test_another_runs_summary_is_noticed_and_the_right_one_written_anew(finished, run, caplog):
    with closing(open_run(run.parent / "other", "lr=0.05")) as other:
        while not other.is_finished:
            other.train_epoch()
    shutil.copy(run.parent / "other" / "summary.json", run / "summary.json")
    found = read_run(run)
    assert (found.state, found.summary) == ("broken", {})
    assert found.problems == ("summary.json belongs to a run with settings other than those in config.toml.",)
    open_run(run).close()
    assert "belongs to a run with settings other than" in caplog.text
    assert_same_run(run, finished / "vsam")


def test_a_summary_that_was_changed_is_noticed(run):
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"accuracy": 99.0}))
    assert read_run(run).problems == ("summary.json is damaged: its checksum does not match its content.",)


def test_a_summary_without_a_key_that_came_later_is_read(tmp_path):
    path = make_run(tmp_path / "run", "sam")
    (path / "summary.json").write_text(json.dumps({**SUMMARY, "seconds": 1, "ais": 0.5}))
    assert read_run(path).summary["skipped"] == 0


@pytest.mark.parametrize("name", ["config.toml", "summary.json", "metrics.jsonl"])
def test_a_pipe_among_the_files_is_not_waited_for(tmp_path, name):
    path = make_run(tmp_path / "run", "sam")
    (path / name).unlink()
    os.mkfifo(path / name)
    assert "not a regular file" in " ".join(read_run(path).problems)


def test_settings_that_are_nested_too_deeply_are_damage(tmp_path):
    path = make_run(tmp_path / "run", "sam")
    with (path / "config.toml").open("a") as file:
        file.write(f"\n[{'.'.join('a' * 3000)}]\n")
    assert read_run(path).damage == "config.toml is nested too deeply."
