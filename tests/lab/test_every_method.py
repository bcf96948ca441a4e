"""Every method end to end through the command, and quantized runs from a full-precision one."""

import json

import pytest

from lab.command import QUICK, assert_refused, vsam
from lab.helpers import lines, open_run
from vsam.lab.methods import METHODS
from vsam.quantize import integer_weights

SAMPLES = {"sgd": 0, "saf": 0, "mesa": 0, "msam": 0, "sam-5": 3, "sam-10": 2, "looksam-5": 3, "vsam-budget": 3}
SAMPLES |= {"sam-late": 2, "msam-adaptive": 0, "displaced": 3}
SAMPLES |= dict.fromkeys(("ae-sam", "vsam", "vsam-a", "bernoulli"))
"""Of 12 steps, by methods that do not sample all; None for those that decide during training."""


def test_every_method_trains_and_has_a_row(tmp_path):
    command = vsam("compare", *QUICK, "--methods", "all", "--seeds", "1", "--json", "-", folder=tmp_path)
    assert command.code == 0, command.stderr
    rows = {row["method"]: row for row in json.loads(command.stdout)}
    assert list(rows) == [method.name for method in METHODS]
    for method, row in rows.items():
        metrics = lines(tmp_path / "runs/fashion-mini-tiny" / method / "seed-0/metrics.jsonl")
        assert [line["epoch"] for line in metrics] == [0, 1]
        assert row["accuracy"] == metrics[-1]["test_accuracy"]
        assert row["steps"] == 12
        assert 0 <= row["samples"] <= 12
        assert SAMPLES.get(method, 12) in (None, row["samples"])
    losses = {name: lines(tmp_path / f"runs/fashion-mini-tiny/{name}/seed-0/metrics.jsonl")[-1] for name in rows}
    # In its first epoch a trajectory loss is plain training; in the second it is another loss.
    for method in ("saf", "mesa"):
        first = lines(tmp_path / f"runs/fashion-mini-tiny/{method}/seed-0/metrics.jsonl")[0]
        plain = lines(tmp_path / "runs/fashion-mini-tiny/sgd/seed-0/metrics.jsonl")[0]
        assert first["train_loss"] == plain["train_loss"]
        assert losses[method]["train_loss"] != losses["sgd"]["train_loss"]


@pytest.mark.parametrize("method", ["sgd", "sam", "vsam"])
def test_a_quantized_run_starts_from_a_full_precision_one(finished, tmp_path, method):
    checkpoint = finished / "sgd" / "checkpoint.pt"
    changes = (f"method={method}", f"quantize.checkpoint={checkpoint}", "quantize.weight_bits=4", "lr=0.001")
    run = open_run(tmp_path / "run", *changes)
    while not run.is_finished:
        run.train_epoch()
    run.close()
    for name, (integers, _) in integer_weights(run.learner.model).items():
        bits = 8 if name in ("stem.0", "classifier") else 4
        assert int(integers.min()) >= -(2 ** (bits - 1)), name
        assert int(integers.max()) <= 2 ** (bits - 1) - 1, name
        assert len(integers.unique()) > 2, name
    steps = [group for group in run.learner.optimizer.param_groups if group["weight_decay"] == 0]
    assert len(steps) == 1
    assert {p.numel() for p in steps[0]["params"]} == {1}
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert 4 < summary["full_bytes"] / summary["quantized_bytes"] < 8


def test_quantization_without_its_checkpoint_says_what_to_add(finished, tmp_path):
    command = vsam("train", *QUICK, "--set", "quantize.weight_bits=4", folder=tmp_path)
    assert_refused(command, 2, "quantize.checkpoint must be the checkpoint.pt of a full-precision run")
    command = vsam("train", *QUICK, "--set", "quantize.checkpoint=nowhere.pt", folder=tmp_path)
    assert_refused(command, 2, "nowhere.pt")
    assert not (tmp_path / "runs").exists()


def test_quantized_runs_of_a_recipe_lie_beside_the_others(tmp_path):
    command = vsam("compare", *QUICK, "--seeds", "1", "--set", "quantize.checkpoint=none", folder=tmp_path)
    assert command.code == 0, command.stderr
    for file in ("vsam/seed-0/summary.json", "comparison.json", "accuracy-cost.png"):
        assert (tmp_path / "runs/fashion-mini-tiny-w4a4" / file).exists()
