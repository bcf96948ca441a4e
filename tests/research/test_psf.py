"""PSF along a run: the run is not changed, and PSF is its first order where that is exact."""

import json
from contextlib import closing

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lab.helpers import CPU, assert_same, open_run, quick_recipe
from research.psf import Probe, Schedule, cosine, follow
from vsam.lab.checkpoint import load_checkpoint


def probed(path, *changes, epochs=None):
    """A run that is looked at, up to an epoch."""
    with closing(open_run(path, *changes)) as run:
        probe = Probe(run, Schedule(run.total_steps, "tiny"))
        run.before_step = probe
        while not run.is_finished and run.epoch != epochs:
            run.train_epoch()
        return probe


def test_the_run_ends_as_without_it(tmp_path):
    assert probed(tmp_path / "run").lines
    with closing(open_run(tmp_path / "plain")) as run:
        while not run.is_finished:
            run.train_epoch()
    ours, theirs = (load_checkpoint(tmp_path / name / "checkpoint.pt") for name in ("run", "plain"))
    for name in ("model", "optimizer", "generators"):
        assert_same(ours[name], theirs[name])


def test_the_fresh_psf_is_the_one_that_sam_takes(tmp_path):
    """In SAM's run every step has a PSF of its own, whose norm is in the records."""
    probe = probed(tmp_path / "run", "method=sam")
    steps = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    own = {line["step"]: line for line in steps}
    for line in probe.lines:
        assert line["psf_norm"] == pytest.approx(own[line["step"]]["psf_norm"], rel=1e-3)
        assert line["grad_norm"] == pytest.approx(own[line["step"]]["grad_norm"], rel=1e-3)


def first_orders(path):
    """The comparisons with the Hessian at a small radius, where PSF should be its first order."""
    lines = probed(path, "method=sgd", "rho=1e-3", "epochs=1").lines
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


def test_the_result_is_kept_and_the_copy_is_gone(tmp_path, monkeypatch):
    recipe = quick_recipe()
    (tmp_path / "run").mkdir()
    content = follow(tmp_path / "run", recipe, "tiny", CPU)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["psf.json"]
    assert len(content["hessian"]) == 4
    ages = content["windows"][-1]["ages"]
    assert [one["age"] for one in ages] == [1, 2, 3, 4]
    assert all(one["low"] <= one["cosine"] <= one["high"] for one in ages)
    assert all(one["n"] == 2 for one in ages[:4])
    monkeypatch.setattr("research.psf.Trainer", None)
    assert follow(tmp_path / "run", recipe, "tiny", CPU) == json.loads(json.dumps(content))


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
