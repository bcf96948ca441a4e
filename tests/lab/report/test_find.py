"""Which folders are runs."""

import pytest

from lab.permissions import obeyed_permissions
from lab.report.made import make_run
from vsam.lab.errors import UserError
from vsam.lab.report.find import find_runs


def test_runs_are_found_at_any_depth_and_once(tmp_path):
    deep = make_run(tmp_path / "a/b/c/seed-0")
    flat = make_run(tmp_path / "run")
    assert find_runs([tmp_path]) == [deep, flat]
    assert find_runs([tmp_path, deep, tmp_path / "a/../run"]) == [deep, flat]
    assert find_runs([deep]) == [deep]


def test_links_are_followed_but_not_in_circles(tmp_path):
    run = make_run(tmp_path / "elsewhere/run")
    study = tmp_path / "study"
    study.mkdir()
    (study / "runs").symlink_to(run.parent)
    (run.parent / "back").symlink_to(study)
    assert find_runs([study]) == [study / "runs/run"]


def test_what_lies_in_a_run_or_is_hidden_is_no_run(tmp_path):
    run = make_run(tmp_path / "run")
    make_run(run / "tensorboard/inner")
    make_run(tmp_path / ".cache/run")
    assert find_runs([tmp_path]) == [run]


def test_empty_folders_are_told_about(tmp_path):
    run = make_run(tmp_path / "run")
    (tmp_path / "empty/seed-1").mkdir(parents=True)
    (tmp_path / "empty/seed-1/.lock").touch()
    (tmp_path / "something else").mkdir()
    assert find_runs([tmp_path]) == [tmp_path / "empty/seed-1", run]
    assert find_runs([run, tmp_path / "something else"]) == [run, tmp_path / "something else"]


def test_folders_without_runs_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match="no run in"):
        find_runs([tmp_path])


def test_what_is_no_folder_is_refused(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match="is a file"):
        find_runs([file])
    with pytest.raises(UserError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])


def test_a_folder_that_cannot_be_entered_does_not_stop_the_search(tmp_path):
    make_run(tmp_path / "good", "sam")
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "seed-1").mkdir(mode=0o444)
    with obeyed_permissions():
        found = find_runs([tmp_path])
    assert tmp_path / "good" in found
