"""The sharpness of a run, on its own training images."""

import json
from contextlib import closing

import pytest

from lab.helpers import CPU, open_run
from vsam.lab.data import Batches
from vsam.lab.errors import UserError
from vsam.lab.runs.checkpoint import load_checkpoint, save_checkpoint
from vsam.lab.runs.flatness import measure_run
from vsam.lab.runs.network import evaluate


def ascent_of(path, num_samples=40, batch_size=16, **options):
    return measure_run(path, num_samples, batch_size, None, "cpu", **{"what": "ascent", **options})


def test_it_is_measured_on_the_runs_own_training_images(finished):
    row = ascent_of(finished / "sam" / "checkpoint.pt", num_samples=1000)
    with closing(open_run(finished / "sam", "method=sam")) as run:
        batches = Batches.test(run.dataset)
        batches.images, batches.labels = run.dataset.train_images, run.dataset.train_labels
        run.training.model.load_state_dict(load_checkpoint(finished / "sam" / "checkpoint.pt")["model"])
        _, expected = evaluate(run.training.model, batches, CPU)
    assert row.found.num_samples == 96  # all there are
    assert row.found.loss == pytest.approx(expected, rel=1e-5)


def test_the_row_says_which_run_it_is_and_serialises(finished):
    path = finished / "vsam" / "checkpoint.pt"
    row = json.loads(json.dumps(ascent_of(path, rho=0.1, mode="train").to_dict()))
    assert (row["run"], row["method"], row["seed"], row["step"]) == (str(path.parent), "vsam", 0, 12)
    assert (row["num_samples"], row["num_batches"], row["rho"], row["mode"]) == (40, 3, 0.1, "train")
    assert row["batch_ascent"]["value"] > 0


def test_what_cannot_be_measured_is_explained(run):
    path = run / "checkpoint.pt"
    for options, message in (({"num_samples": 0}, "--samples"), ({"batch_size": 0}, "--batch"), ({"rho": -1}, "rho")):
        with pytest.raises(UserError, match=message):
            ascent_of(path, **options)
    content = load_checkpoint(path)
    weights = {name: value * float("nan") for name, value in content["model"].items()}
    save_checkpoint(path, content | {"model": weights})
    with pytest.raises(UserError, match="The loss at these weights is nan"):
        ascent_of(path)
    save_checkpoint(path, content | {"model": {}})
    with pytest.raises(UserError, match="do not match its resnet8"):
        ascent_of(path)
    content["recipe"]["quantize"] = {"checkpoint": "none"}
    save_checkpoint(path, content)
    with pytest.raises(UserError, match="is a quantized run"):
        ascent_of(path)
