"""A run that is killed at any moment and started again ends as if nothing had been."""

import itertools
import random
import time

import pytest
import torch

from lab.command import QUICK, Command, vsam
from lab.helpers import assert_same_run, lines, open_run
from vsam.lab.errors import RunError
from vsam.lab.methods import METHODS

OFTEN = ("--set", "checkpoint_seconds=1e-6")


def test_the_reference_is_worth_comparing_with(finished):
    steps = {method: len(lines(finished / method / "steps.jsonl")) for method in ("sgd", "sam", "vsam")}
    assert steps["sgd"] == 0
    assert steps["sam"] == 12
    assert 4 <= steps["vsam"] < 12
    memory = torch.load(finished / "vsam" / "checkpoint.pt", weights_only=True)["optimizer"]
    assert any(state["momentum_buffer"].any() for state in memory["state"].values())


@pytest.mark.parametrize(("method", "first", "stride"), [("sgd", 2, 5), ("sam", 4, 5), ("vsam", 1, 2)])
def test_killed_before_touching_a_file(finished, tmp_path, method, first, stride):
    arguments = ("train", *QUICK, *OFTEN, "--set", f"method={method}", "--out", "run")
    for count in itertools.count(first, stride):
        command = vsam(*arguments, folder=tmp_path, die_before=count)
        if command.code == 0:
            break
        assert command.code == -9, command.stderr
    assert count > 10
    assert_same_run(tmp_path / "run", finished / method)


def test_killed_at_random_moments(finished, tmp_path):
    arguments = ("train", *QUICK, *OFTEN, "--out", "run")
    draw = random.Random(0)
    for _ in range(6):
        command = Command(arguments, tmp_path).start()
        time.sleep(draw.uniform(0.05, 0.9))
        command.kill()
    assert vsam(*arguments, folder=tmp_path).code == 0
    assert_same_run(tmp_path / "run", finished / "vsam")


def test_lines_that_were_cut_off_or_written_too_early_are_dropped(finished, begun):
    for name in ("metrics.jsonl", "steps.jsonl"):
        with (begun / name).open("a") as file:
            file.write('{"step": 7, "epoch": 1, "loss": 1.0}\n{"step": 8, "epo')
    (begun / ".checkpoint.pt.x1y2z3").write_bytes(b"half a checkpoint")
    command = vsam("train", *QUICK, "--out", str(begun), folder=begun.parent)
    assert command.code == 0, command.stderr
    assert "Resuming at step 6 of 12." in command.stderr
    assert_same_run(begun, finished / "vsam")


def test_what_killed_processes_left_behind_is_cleared_away(begun):
    """A half-written checkpoint of a large network is half a gigabyte, and every kill may leave one."""
    (begun / ".checkpoint.pt.x1y2z3").write_bytes(b"half a checkpoint")
    assert vsam("train", *QUICK, "--out", str(begun), folder=begun.parent).code == 0
    left = {path.name for path in begun.iterdir()} - {".lock"}
    assert left == {"config.toml", "metrics.jsonl", "steps.jsonl", "checkpoint.pt", "summary.json"}


@pytest.mark.parametrize("rest", [None, "", '{"recipe": "fashion-m'])
def test_killed_between_the_last_checkpoint_and_the_summary(finished, run, rest):
    before = (run / "checkpoint.pt").read_bytes()
    (run / "summary.json").unlink()
    if rest is not None:
        (run / "summary.json").write_text(rest)
    command = vsam("train", *QUICK, "--out", str(run), folder=run.parent)
    assert command.code == 0, command.stderr
    assert (run / "checkpoint.pt").read_bytes() == before
    assert_same_run(run, finished / "vsam")


@pytest.mark.parametrize("content", [None, "", "[]", '{"epoch": 7, "step": 6}'])
def test_metrics_that_were_lost_or_changed_come_from_the_checkpoint(finished, begun, content):
    (begun / "metrics.jsonl").unlink() if content is None else (begun / "metrics.jsonl").write_text(content)
    assert vsam("train", *QUICK, "--out", str(begun), folder=begun.parent).code == 0
    assert_same_run(begun, finished / "vsam")


@pytest.mark.parametrize("content", ["[]", "{}", "null"])
def test_a_summary_that_says_nothing_is_written_anew(finished, run, content):
    (run / "summary.json").write_text(content)
    command = vsam("train", *QUICK, "--out", str(run), folder=run.parent)
    assert command.code == 0, command.stderr
    assert_same_run(run, finished / "vsam")


OTHERS = [method.name for method in METHODS if method.name not in ("sgd", "sam", "vsam")]


@pytest.mark.slow
@pytest.mark.parametrize("method", OTHERS)
def test_every_other_method_goes_on_in_the_middle_of_an_epoch(tmp_path, method):
    changes = [f"method={method}", "data.train=64", "batch=32", "checkpoint_seconds=1e-6"]

    def stop(step):
        if step == 4:
            raise KeyboardInterrupt

    whole = open_run(tmp_path / "whole", *changes)
    while not whole.is_finished:
        whole.train_epoch()
    whole.close()
    cut = open_run(tmp_path / "cut", *changes)
    cut.train_epoch()
    with pytest.raises(KeyboardInterrupt):
        cut.train_epoch(stop)
    cut.close()
    cut = open_run(tmp_path / "cut", *changes)
    assert cut.step == 3
    while not cut.is_finished:
        cut.train_epoch()
    cut.close()
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_checkpoint_of_another_run_is_refused(begun, tmp_path):
    """Its weights would fit, and the result would be nobody's."""
    other = open_run(tmp_path / "other", "seed=1")
    other.train_epoch()
    other.close()
    (begun / "checkpoint.pt").write_bytes((tmp_path / "other/checkpoint.pt").read_bytes())
    with pytest.raises(RunError, match="belongs to a run with other settings"):
        open_run(begun)
