"""PSF along a run: the run is not changed, PSF is its first order where that is exact, and a kill costs nothing."""

import json
from contextlib import closing

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lab.helpers import CPU, assert_same, open_run, quick_recipe
from vsam.lab.runs.checkpoint import load_checkpoint
from vsam.lab.study.flatness import psf
from vsam.lab.study.flatness.psf import Probe, Schedule, cosine, follow, read_psf


def probed(path, *changes, epochs=None):
    """A run that is looked at, up to an epoch."""
    with closing(open_run(path, *changes)) as run:
        probe = Probe(run, Schedule(run.total_steps, "tiny"), path)
        run.before_step = probe
        while not run.is_finished and run.epoch != epochs:
            run.train_epoch()
        return probe


def test_the_run_ends_as_without_it(finished, tmp_path):
    probe = probed(tmp_path / "run")
    assert probe.lines
    ours, theirs = (load_checkpoint(path / "checkpoint.pt") for path in (tmp_path / "run", finished / "vsam"))
    for name in ("model", "optimizer", "generators"):
        assert_same(ours[name], theirs[name])


def test_the_fresh_psf_is_the_one_that_sam_takes(tmp_path):
    """In SAM's run every step has a PSF of its own, whose norm is in the records."""
    probe = probed(tmp_path / "run", "method=sam")
    steps = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    own = {line["step"]: line for line in steps}
    for step, line in probe.lines.items():
        assert line["psf_norm"] == pytest.approx(own[step]["psf_norm"], rel=1e-3)
        assert line["grad_norm"] == pytest.approx(own[step]["grad_norm"], rel=1e-3)


def first_orders(path):
    """The comparisons with the Hessian at a small radius, where PSF should be its first order."""
    lines = probed(path, "method=sgd", "rho=1e-3", "epochs=1").lines.values()
    return [line["hessian"] for line in lines if "hessian" in line]


def test_psf_is_its_first_order_in_a_smooth_network(tmp_path, monkeypatch):
    def smooth(self, values):
        return F.softplus(values, beta=4.0)

    monkeypatch.setattr(nn.ReLU, "forward", smooth)
    monkeypatch.setattr(F, "relu", lambda values, inplace=False: smooth(None, values))
    compared = first_orders(tmp_path / "run")
    assert len(compared) == 4
    assert all(one["error"] < 0.05 for one in compared)
    assert all(one["cosine"] > 0.99 for one in compared)


def test_kinks_give_psf_what_the_hessian_does_not_see(tmp_path):
    """The page says so: where units switch on and off the gradient jumps, and no second derivative knows of it."""
    assert all(one["error"] > 0.5 for one in first_orders(tmp_path / "run"))


def test_a_run_that_was_stopped_has_seen_the_same(tmp_path):
    whole = probed(tmp_path / "whole").lines
    probed(tmp_path / "run", epochs=1)
    with (tmp_path / "run" / "probe.jsonl").open("a") as file:
        file.write('{"step": 7, "wind')  # of a process that was killed
    again = probed(tmp_path / "run").lines
    assert again == whole
    assert any(line["pairs"] for step, line in whole.items() if step > 6)


def test_the_result_is_kept_and_the_copy_is_gone(finished, tmp_path, monkeypatch):
    recipe = quick_recipe()
    (tmp_path / "run").mkdir()
    content = follow(tmp_path / "run", recipe, "tiny", None, CPU)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["psf.json"]
    assert read_psf(tmp_path / "run") == json.loads(json.dumps(content))
    assert len(content["hessian"]) == 4
    ages = content["windows"][-1]["ages"]
    assert [one["age"] for one in ages] == [1, 2, 3, 4]
    assert all(one["low"] <= one["cosine"] <= one["high"] for one in ages)
    assert all(one["n"] == 2 for one in ages[:4])
    monkeypatch.setattr(psf, "Run", None)
    assert follow(tmp_path / "run", recipe, "tiny", None, CPU) == read_psf(tmp_path / "run")


def test_windows_are_within_the_run_and_overlapping_ones_end():
    schedule = Schedule(1280, "small")
    assert len(schedule.starts) == 5
    assert schedule.starts[0] < 100
    assert schedule.starts[-1] + 60 == 1280
    assert schedule.window(schedule.starts[1] + 59) == schedule.starts[1]
    assert schedule.window(schedule.starts[1] + 60) is None
    assert {0, 1279} <= schedule.compared
    assert len(schedule.compared) == 40
    assert Schedule(3, "small").starts == [0]


def test_cosines():
    one, other = torch.tensor([3.0, 4.0]), torch.tensor([4.0, -3.0])
    assert cosine(one, one) == pytest.approx(1.0)
    assert cosine(one, other) == pytest.approx(0.0, abs=1e-6)
    assert cosine(one, torch.zeros(2)) == 0.0


def test_what_cannot_be_read_is_not_there(tmp_path):
    assert read_psf(tmp_path) is None
    for text in ("{", "[]", '{"scale": "tiny"}'):
        (tmp_path / "psf.json").write_text(text)
        assert read_psf(tmp_path) is None
