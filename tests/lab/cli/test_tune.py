"""`vsam tune` in real processes: killed, shared, finished, and refused."""

import json
import math
import random
import subprocess
import sys
import time

import pytest

from lab.command import Command, assert_refused, vsam
from lab.tune.test_search import CHANGES
from vsam.lab.cli.tune import tune
from vsam.lab.errors import DataError, UserError
from vsam.lab.recipes.load import load_recipe

TRIALS = 4
QUICK = ("--tiny", *(part for change in CHANGES for part in ("--set", change)))
ARGUMENTS = ("tune", *QUICK, "--set", "checkpoint_seconds=1e-6", "--trials", str(TRIALS), "--out", "search")


def trials(folder):
    """Return the fields of trials that must not depend on kills or on the process that trained them."""
    names = ("number", "state", "settings", "accuracy", "epochs", "loss", "samples", "steps", "error")
    record = json.loads((folder / "search" / "trials.json").read_text())
    return [{name: trial[name] for name in names} for trial in record["trials"]]


def files(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A finished search of one process."""
    folder = tmp_path_factory.mktemp("searched")
    command = vsam(*ARGUMENTS, folder=folder)
    assert command.code == 0, command.stderr
    return folder, command


def test_it_says_what_it_found_and_where(searched):
    folder, command = searched
    assert "4 trials: 4 complete." in command.stdout
    assert "on 10 held-out training images" in command.stdout
    assert "standard error" in command.stdout
    for name in ("trials.png", "best.toml"):
        assert f"search/{name}" in command.stdout
        assert (folder / "search" / name).exists()
    assert all(line.startswith("trial ") for line in command.stderr.splitlines()), "Optuna should not be heard"
    assert "trial 0 complete: rho=0.2, vsam.alpha=0.2, vsam.gamma=0.7" in command.stderr


def test_the_best_recipe_trains(searched):
    folder, _ = searched
    record = json.loads((folder / "search" / "trials.json").read_text())
    recipe = load_recipe(str(folder / "search" / "best.toml"))
    best = record["trials"][record["best"]]["settings"]
    assert {"rho": recipe.rho, "vsam.alpha": recipe.vsam.alpha, "vsam.gamma": recipe.vsam.gamma} == best
    assert recipe.data.train == 50
    command = vsam("train", "search/best.toml", "--out", "run", folder=folder)
    assert command.code == 0, command.stderr
    assert json.loads((folder / "run" / "summary.json").read_text())["data"] == "fashion-mini"


def test_a_finished_search_says_so_and_changes_nothing(searched):
    folder, _ = searched
    before = files(folder / "search")
    again = vsam(*ARGUMENTS, folder=folder)
    assert again.code == 0
    assert "search is finished: 4 trials: 4 complete." in again.stdout
    assert again.stderr == ""
    assert files(folder / "search") == before


def test_killed_before_touching_a_file(searched, tmp_path):
    for count in (3, 30, 75):
        command = vsam(*ARGUMENTS, folder=tmp_path, die_before=count)
        if command.code == 0:
            break
        assert command.code == -9, command.stderr
    assert count > 3
    assert vsam(*ARGUMENTS, folder=tmp_path).code == 0
    assert trials(tmp_path) == trials(searched[0])
    assert not list(tmp_path.rglob("checkpoint.pt"))


def test_killed_at_random_moments(searched, tmp_path):
    draw = random.Random(0)
    for _ in range(3):
        command = Command(ARGUMENTS, tmp_path).start()
        deadline = time.monotonic() + 900
        while command.is_running and "epoch" not in command.stderr and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.5))
        command.kill()
    assert vsam(*ARGUMENTS, folder=tmp_path).code == 0
    assert trials(tmp_path) == trials(searched[0])


def test_two_folders_share_a_database(tmp_path):
    arguments = [part if part != "search" else None for part in ARGUMENTS]
    storage = ("--storage", f"sqlite:///{tmp_path}/hunter2.db")
    commands = []
    for name in ("search", "there"):
        commands.append(Command((*(part or name for part in arguments), *storage), tmp_path).start())
    for command in commands:
        assert command.wait().code == 0, command.stderr
        assert "hunter2" not in command.stdout + command.stderr
    finished = vsam(*ARGUMENTS, *storage, folder=tmp_path)
    assert "search is finished: " in finished.stdout
    assert {trial["state"] for trial in trials(tmp_path)} == {"complete"}
    assert [path for path, content in files(tmp_path).items() if b"hunter2" in content and path.suffix != ".db"] == []


def test_a_method_that_needs_the_length_of_the_run(tmp_path):
    command = vsam("tune", *QUICK, "--method", "sam-late", "--set", "late.last=0.3", "--trials", "1", folder=tmp_path)
    assert command.code == 0, command.stderr


def test_the_storage_can_come_from_the_environment(tmp_path):
    environment = {"VSAM_STORAGE": "nosuch://me:hunter2@host/name"}
    command = vsam(*ARGUMENTS, folder=tmp_path, environment=environment)
    assert_refused(command, 2, "--storage needs the URL of a database")
    assert "hunter2" not in command.stderr
    assert "hunter2" not in vsam("tune", "--help", folder=tmp_path, environment=environment).stdout


def test_all_failed(tmp_path):
    arguments = ("tune", *QUICK, "--trials", "2", "--out", "search", "--search", "lr=1e28:1e30")
    command = vsam(*arguments, folder=tmp_path)
    assert_refused(command, 1, "None of 2 trials completed", "trial 0: ", "trial 1: ")
    assert "2 trials: 2 failed." in command.stdout
    assert [trial["state"] for trial in trials(tmp_path)] == ["failed", "failed"]
    assert not (tmp_path / "search" / "best.toml").exists()


def test_ctrl_c(tmp_path):
    command = Command(("tune", "--tiny", "--set", "epochs=500", "--out", "search"), tmp_path).start()
    while "epoch" not in command.stderr and command.is_running:
        time.sleep(0.05)
    assert_refused(command.interrupt().wait(), 1, "Interrupted. Rerun the same command")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"trials": 0}, ["--trials must be at least 1, got 0"]),
        ({"seeds": 0}, ["--seeds must be at least 1, got 0"]),
        ({"timeout": -1.0}, ["--timeout must be above 0 minutes, got -1"]),
        ({"timeout": math.nan}, ["--timeout must be above 0"]),
        ({"storage": ""}, ["--storage must not be empty"]),
        ({"out": ""}, ["--out must not be empty"]),
        ({"method": "sgd"}, ["sgd has no settings of its own"]),
        ({"method": "vsma"}, ["Did you mean 'vsam'"]),
        ({"method": "sam", "changes": ["method=vsam"]}, ["given twice"]),
        ({"search": "roh=0.1:0.2"}, ["Did you mean 'rho'"]),
        ({"changes": ["vsam.window=7"]}, ["vsam: ", "7"]),
        ({"changes": ["quantize.weight_bits=4"]}, ["quantize.checkpoint"]),
        ({"changes": ["data.train=4"]}, ["only 4"]),
    ],
)
def test_what_the_user_gave_is_checked_before_a_folder_is_made(tmp_path, monkeypatch, options, parts):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((UserError, DataError)) as raised:
        tune(tiny=True, **options)
    for part in parts:
        assert part in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_another_search_in_the_folder_is_refused(searched):
    folder, _ = searched
    before = files(folder / "search")
    assert_refused(vsam(*ARGUMENTS, "--seeds", "2", folder=folder), 2, "has another search", "seeds 1 instead of 2")
    assert files(folder / "search") == before


def test_without_optuna_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"needs optuna: pip install .*\[lab,tune\]"):
        tune()


def test_optuna_is_not_loaded_for_other_commands():
    code = "import sys, vsam.lab.cli.tune; assert not {'optuna', 'sqlalchemy', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
