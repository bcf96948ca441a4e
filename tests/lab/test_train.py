"""Measurements of a run, and its end."""

import json
import math
import tomllib
from contextlib import closing

import pytest
import torch

from lab.command import QUICK, assert_refused, vsam
from lab.helpers import lines, open_run, quick_recipe
from vsam.lab import learner, train
from vsam.lab.data import Batches


def summary(path):
    return json.loads((path / "summary.json").read_text())


@pytest.mark.parametrize("method", ["sgd", "sam", "vsam"])
def test_a_run_is_a_folder_with_these_files(finished, method):
    names = {path.name for path in (finished / method).iterdir()} - {".lock"}
    expected = {"config.toml", "metrics.jsonl", "steps.jsonl", "checkpoint.pt", "summary.json"}
    assert names == expected


@pytest.mark.parametrize("method", ["sgd", "sam", "vsam"])
def test_ais_is_images_times_epochs_over_the_epochs_seconds(finished, method):
    epochs = lines(finished / method / "metrics.jsonl")
    seconds = [line["seconds"] for line in epochs]
    assert summary(finished / method)["ais"] == pytest.approx(96 * 2 / sum(seconds), rel=1e-9)
    assert summary(finished / method)["seconds"] == pytest.approx(sum(seconds), rel=1e-9)
    for line in epochs:
        assert line["ais"] == pytest.approx(96 / line["seconds"], rel=1e-9)


def test_evaluation_and_saving_are_not_counted(tmp_path, monkeypatch):
    now = 0.0

    def passing(seconds, work=lambda *_: None):
        def done(*arguments):
            nonlocal now
            now += seconds
            return work(*arguments)

        return done

    monkeypatch.setattr(train.time, "perf_counter", lambda: now)
    monkeypatch.setattr(learner, "evaluate", passing(100, learner.evaluate))
    monkeypatch.setattr(train, "save_checkpoint", passing(1000, train.save_checkpoint))
    with closing(open_run(tmp_path / "run", "method=sgd", "checkpoint_seconds=1e-9")) as run:
        while not run.is_finished:
            run.train_epoch(passing(1))
    assert summary(tmp_path / "run")["seconds"] == 12
    assert now == 12 + 2 * 100 + 12 * 1000


@pytest.mark.parametrize("method", ["sgd", "sam", "vsam"])
def test_the_summary_follows_from_the_epochs(finished, method):
    epochs, result = lines(finished / method / "metrics.jsonl"), summary(finished / method)
    assert result["accuracy"] == epochs[-1]["test_accuracy"]
    assert result["best"] == max(line["test_accuracy"] for line in epochs)
    assert result["samples"] == epochs[-1]["samples"] == len(lines(finished / method / "steps.jsonl"))
    assert (result["epochs"], result["steps"], result["skipped"]) == (2, 12, 0)
    assert (result["method"], result["seed"]) == (method, 0)
    assert (result["data"], result["model"]) == ("fashion-mini", "resnet8")
    assert {"torch", "vsam", "python", "device", "commit", "cores", "threads"} <= result["environment"].keys()


def test_the_accuracy_is_that_of_the_saved_weights(finished):
    content = torch.load(finished / "vsam" / "checkpoint.pt", weights_only=True)
    run = open_run_of(finished / "vsam")
    run.learner.model.load_state_dict(content["model"])
    run.learner.model.eval()
    batch = next(iter(Batches.test(run.dataset, batch_size=1000)))
    with torch.no_grad():
        logits = run.learner.model(batch.images)
    accuracy = 100 * (logits.argmax(1) == batch.labels).double().mean().item()
    assert accuracy == pytest.approx(summary(finished / "vsam")["accuracy"])
    loss = torch.nn.functional.cross_entropy(logits, batch.labels).item()
    assert loss == pytest.approx(lines(finished / "vsam" / "metrics.jsonl")[-1]["test_loss"], rel=1e-4)


def open_run_of(path):
    run = open_run(path)
    run.close()
    return run


def test_the_learning_rate_falls_along_a_cosine_by_step(finished):
    rates = [line["lr"] for line in lines(finished / "sgd" / "metrics.jsonl")]
    expected = [0.5 * 0.1 * (1 + math.cos(math.pi * step / 12)) for step in (5, 11)]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_a_constant_schedule_is_constant(tmp_path):
    run = open_run(tmp_path / "run", "schedule=constant", "method=sgd", "data.train=32")
    run.train_epoch()
    run.close()
    assert lines(tmp_path / "run" / "metrics.jsonl")[0]["lr"] == 0.1


def test_sampled_steps_are_recorded_with_their_norms(finished):
    steps = lines(finished / "sam" / "steps.jsonl")
    assert [line["step"] for line in steps] == list(range(1, 13))
    assert [line["epoch"] for line in steps] == [0] * 6 + [1] * 6
    for line in steps:
        assert line["rate"] == 1
        assert line["grad_norm"] > 0
        assert line["psf_norm"] > 0
        assert line["rise"] > -1


def test_norms_can_be_left_out(tmp_path):
    run = open_run(tmp_path / "run", "norms=false", "method=sam", "data.train=32")
    run.train_epoch()
    run.close()
    assert {line["psf_norm"] for line in lines(tmp_path / "run" / "steps.jsonl")} == {None}


def test_the_config_is_the_whole_recipe(finished):
    config = tomllib.loads((finished / "vsam" / "config.toml").read_text())
    assert config == tomllib.loads(quick_recipe().to_toml())


def test_seeds_differ_and_the_data_do_not(tmp_path):
    first, second = (open_run(tmp_path / str(seed), f"seed={seed}") for seed in (0, 1))
    assert torch.equal(first.dataset.train_images, second.dataset.train_images)
    weights = [next(run.learner.model.parameters()) for run in (first, second)]
    assert not torch.equal(*weights)
    first.close()
    second.close()


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run = open_run(tmp_path / "run", "data.train=32")
    run.train_epoch()
    run.close()
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("method", ["sgd", "vsam"])
def test_a_nan_loss_stops_the_run_with_step_method_and_advice(tmp_path, method):
    arguments = ("train", *QUICK, "--set", "lr=1e30", "--set", f"method={method}", "--out", "run")
    command = vsam(*arguments, folder=tmp_path)
    assert_refused(command, 1, "The loss is nan at step 2 of 12", f"with {method} ", "lr 1e+30", "smaller lr")
    assert not (tmp_path / "run" / "summary.json").exists()


def test_weights_that_explode_in_the_last_step_are_no_result(tmp_path):
    arguments = ("--set", "lr=1e30", "--set", "data.train=16", "--set", "epochs=1", "--set", "method=sgd")
    command = vsam("train", *QUICK, *arguments, "--out", "run", folder=tmp_path)
    assert_refused(command, 1, "nan", "sgd", "smaller lr")
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "count"), [("sam", 10), ("vsam", 4), ("looksam-5", 3)])
def test_a_run_whose_second_gradients_are_never_finite_is_no_result(tmp_path, method, count):
    arguments = ("train", *QUICK, "--set", f"method={method}", "--set", "rho=1e30", "--out", "run")
    for _ in range(2):
        command = vsam(*arguments, folder=tmp_path)
        assert_refused(command, 1, f"last {count} second", "of 12", f"with {method} ", "rho 1e+30", "smaller lr or rho")
        assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.filterwarnings("ignore:A gradient was not finite")
def test_a_few_skipped_steps_are_counted(tmp_path):
    run = open_run(tmp_path / "run", "method=sam", "epochs=1")

    def disturb(step):
        run.learner.optimizer.param_groups[0]["rho"] = 1e30 if step in (1, 2, 4) else 0.1

    run.train_epoch(disturb)
    run.close()
    assert lines(tmp_path / "run" / "metrics.jsonl")[0]["skipped"] == 3
    assert summary(tmp_path / "run")["skipped"] == 3
    again = vsam("train", *QUICK, "--set", "method=sam", "--set", "epochs=1", "--out", "run", folder=tmp_path)
    assert "3 skipped as non-finite" in again.stdout


def test_saf_announces_its_memory_before_training(tmp_path):
    command = vsam("train", *QUICK, "--set", "method=saf", "--out", "run", folder=tmp_path)
    assert command.code == 0
    assert command.stderr.startswith("SAF keeps the logits of 96 examples over 2 epochs: ")


GREEDY = """
import torch

from vsam.lab import method, model


@model("greedy")
def greedy():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 2**50))


@method("full-gpu")
def full_gpu(model):
    class Full(torch.optim.SGD):
        def step(self, closure=None):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    return Full(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize("setting", ["model=greedy", "method=full-gpu"])
def test_memory_that_runs_out_is_said_in_a_sentence(tmp_path, setting):
    (tmp_path / "own.py").write_text(GREEDY)
    command = vsam("train", *QUICK, "--use", "own.py", "--set", setting, folder=tmp_path)
    assert_refused(command, 1, "Error: Out of memory on cpu for ", "batches of 16: use a smaller batch")
