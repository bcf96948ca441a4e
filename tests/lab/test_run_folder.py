"""A run's folder: one process at a time, one recipe, and never harmed."""

import itertools
import time
import tomllib
from contextlib import closing

import tomli_w
import torch

from lab.command import QUICK, Command, assert_refused, vsam
from lab.helpers import assert_same_run, lines, open_run, quick_recipe
from vsam.lab.checkpoint import save_checkpoint

LONG = ("train", *QUICK, "--set", "epochs=1000", "--out", "run")


def state(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def wait_for(is_so, command):
    end = time.monotonic() + 300
    while not is_so():
        assert command.is_running, command.stderr
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_second_process_is_refused_and_ctrl_c_leaves_a_run_that_goes_on(tmp_path):
    metrics = tmp_path / "run" / "metrics.jsonl"
    first = Command(LONG, tmp_path).start()
    wait_for(metrics.exists, first)
    assert_refused(vsam(*LONG, folder=tmp_path), 2, "run is in use by another process")
    done = len(lines(metrics))
    wait_for(lambda: len(lines(metrics)) > done, first)

    assert_refused(first.interrupt().wait(), 1, "Interrupted", "Rerun the same command")
    step = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["step"]
    again = Command(LONG, tmp_path).start()
    wait_for(lambda: f"Resuming at step {step} of 6000." in again.stderr, again)
    done = len(lines(metrics))
    wait_for(lambda: len(lines(metrics)) > done, again)
    again.kill()
    epochs = [line["epoch"] for line in lines(metrics)]
    assert epochs == list(itertools.islice(itertools.count(), len(epochs)))


def test_other_settings_are_refused_by_name(run):
    before, old = state(run), quick_recipe().vsam.alpha
    changes = ("--set", "seed=3", "--set", "vsam.alpha=0.9", "--set", "data.test=40")
    command = vsam("train", *QUICK, *changes, "--out", str(run), folder=run.parent)
    assert_refused(command, 2, str(run), "data.test 50 instead of 40, seed 0 instead of 3")
    assert_refused(command, 2, f"vsam.alpha {old} instead of 0.9")
    assert state(run) == before


def test_a_run_that_is_older_than_a_setting_goes_on(tmp_path):
    with closing(open_run(tmp_path / "run", "epochs=2")) as run:
        run.train_epoch()
    config, checkpoint = (tmp_path / "run" / name for name in ("config.toml", "checkpoint.pt"))
    settings, content = tomllib.loads(config.read_text()), torch.load(checkpoint, weights_only=True)
    for older in (settings, content["recipe"]):
        del older["bf16"], older["vsam"]["slices"]
    config.write_text(tomli_w.dumps(settings))
    save_checkpoint(checkpoint, content)
    with closing(open_run(tmp_path / "run", "epochs=2")) as run:
        assert run.step > 0


def test_a_key_that_the_folder_does_not_have_is_named(run):
    command = vsam("train", *QUICK, "--set", "asam.rho=0.5", "--out", str(run), folder=run.parent)
    assert_refused(command, 2, "asam.rho None instead of 0.5")


def test_a_finished_run_says_so_and_changes_nothing(run):
    before = state(run)
    command = vsam("train", *QUICK, "--out", str(run), folder=run.parent)
    assert command.code == 0
    assert f"{run} is finished: vsam reached" in command.stdout
    assert command.stderr == ""
    assert state(run) == before


def test_a_full_disk_is_named_and_the_last_checkpoint_stays(finished, begun):
    before = state(begun)
    command = vsam("train", *QUICK, "--out", str(begun), folder=begun.parent, file_size=300_000)
    assert_refused(command, 1, f"{begun / 'checkpoint.pt'} could not be written", "File too large")
    assert state(begun)["checkpoint.pt"] == before["checkpoint.pt"]
    assert state(begun).keys() == before.keys()
    assert vsam("train", *QUICK, "--out", str(begun), folder=begun.parent).code == 0
    assert_same_run(begun, finished / "vsam")


def test_a_full_disk_while_appending_steps_is_named(tmp_path):
    with closing(open_run(tmp_path / "run", "method=sam")) as run:
        run.train_epoch()
    arguments = ("train", *QUICK, "--set", "method=sam", "--out", "run")
    size = (tmp_path / "run/steps.jsonl").stat().st_size
    command = vsam(*arguments, folder=tmp_path, file_size=size + 40)
    assert_refused(command, 1, "run/steps.jsonl could not be written", "File too large")
    assert vsam(*arguments, folder=tmp_path).code == 0
    assert len(lines(tmp_path / "run/steps.jsonl")) == 12


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for out in ("file", "file/run"):
        assert_refused(vsam("train", *QUICK, "--out", out, folder=tmp_path), 2, f"{out} cannot be written to", "--out")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_broken_config_is_named_and_kept(run):
    (run / "config.toml").write_text("epochs = ")
    command = vsam("train", *QUICK, "--out", str(run), folder=run.parent)
    assert_refused(command, 1, "config.toml is not valid TOML")
    assert (run / "config.toml").read_text() == "epochs = "


def test_a_run_without_its_config_is_refused(run):
    (run / "config.toml").unlink()
    assert_refused(vsam("train", *QUICK, "--out", str(run), folder=run.parent), 1, "config.toml is missing")


def test_an_empty_config_is_damage_and_no_other_settings(run):
    (run / "config.toml").write_text("")
    command = vsam("train", *QUICK, "--out", str(run), folder=run.parent)
    assert_refused(command, 1, "config.toml is damaged: method is None", f"Delete {run} to retrain")


def test_paths_with_spaces_umlauts_and_links_work_from_anywhere(run, tmp_path):
    place = tmp_path / "möbel und Läufe 猫"
    place.mkdir()
    (place / "link").symlink_to(run)
    command = vsam("train", *QUICK, "--out", "link", folder=place)
    assert command.code == 0, command.stderr
    assert command.stdout.startswith("link is finished")
    command = vsam("train", *QUICK, "--out", str(place / "link"), folder=run)
    assert f"{place / 'link'} is finished" in command.stdout
