"""Quantized runs: what is not one is refused, and layers with negative inputs can be named."""

import io

import pytest
import torch

from lab.command import QUICK, assert_refused, vsam
from lab.helpers import quick_recipe
from vsam.lab import models
from vsam.lab.errors import UserError
from vsam.lab.learner import quantized_model
from vsam.lab.recipes.recipe import canonical_settings
from vsam.quantize import QuantConv2d

_buffer = io.BytesIO()
torch.save({"weight": torch.zeros(3)}, _buffer)
FOREIGN = _buffer.getvalue()


@pytest.mark.parametrize("weights", [3, {"a": torch.zeros(1)}, None], ids=str)
def test_training_from_what_is_no_such_network_is_refused(tmp_path, weights):
    torch.save({"format": "vsam-run", "version": 3, "model": weights}, tmp_path / "bad.pt")
    settings = ("--set", "quantize.weight_bits=4", "--set", "quantize.checkpoint=bad.pt")
    command = vsam("train", *QUICK, *settings, "--out", "run", folder=tmp_path)
    assert_refused(command, 2, "full-precision run of resnet8", "'bad.pt' are not those of that network.")


def test_a_missing_checkpoint_is_called_missing(tmp_path):
    settings = ("--set", "quantize.weight_bits=4", "--set", "quantize.checkpoint=nowhere/checkpoint.pt")
    command = vsam("train", *QUICK, *settings, "--out", "run", folder=tmp_path)
    assert_refused(command, 2, "nowhere/checkpoint.pt cannot be read: No such file")


def test_where_the_runs_lie_is_no_setting_but_which_one_it_starts_from_is(tmp_path, monkeypatch):
    def settings(checkpoint):
        return canonical_settings(quick_recipe(f"quantize.checkpoint={checkpoint}").model_dump())

    monkeypatch.chdir(tmp_path)
    source = "runs/full/sgd/seed-0/checkpoint.pt"
    assert settings(source) == settings(tmp_path / source) == settings(f"/moved/{source}")
    assert settings(source) != settings("runs/full/sgd/seed-1/checkpoint.pt")
    assert settings("none") != settings(source)


def signed_convolutions(*patterns):
    recipe = quick_recipe("quantize.checkpoint=none", f"quantize.signed_inputs={list(patterns)}")
    model = quantized_model(models.build("resnet8"), recipe)
    layers = [layer for layer in model.modules() if isinstance(layer, QuantConv2d)]
    return [layer.signed_input for layer in layers]


def test_layers_with_negative_inputs_are_named_by_the_recipe():
    assert sum(signed_convolutions()) == 1  # the first layer, which sees the images
    assert all(signed_convolutions("*"))
    with pytest.raises(UserError, match=r"^quantize\.signed_inputs names \['branch'\], but the layers are"):
        signed_convolutions("branch")
