"""Negative inputs of a layer that takes them for the output of a ReLU: noticed, named, and kept where asked for."""

import logging

import torch
from torch import nn

from vsam.quantize import QuantizedLayer, QuantLinear, quantize

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_negative_inputs_of_an_unsigned_layer_are_said_once(caplog):
    layer, signed = QuantLinear(4, 2), QuantLinear(4, 2, signed_input=True)
    inputs = torch.tensor([[1.0, -1.0, 0.0, 2.0]])
    with caplog.at_level(logging.WARNING, logger="vsam.quantize.layers"):
        for _ in range(2):
            layer(inputs)
            signed(inputs)
            QuantLinear(4, 2)(inputs.relu())
    assert len(caplog.records) == 1
    assert caplog.messages[0].startswith("QuantLinear(in_features=4, out_features=2, bias=True,")
    assert "25.0 % of its input is negative" in caplog.text
    assert "`signed_inputs`" in caplog.text


class _Residual(nn.Module):
    """As in a PyramidNet: a block's first convolution has no ReLU before it."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.BatchNorm2d(6), nn.Conv2d(6, 6, 1), nn.ReLU(), nn.Conv2d(6, 6, 1))

    def forward(self, images):
        return images + self.branch(images)


def _pyramid():
    torch.manual_seed(0)
    blocks = nn.Sequential(_Residual(), _Residual())
    return nn.Sequential(nn.Conv2d(3, 6, 1), blocks, nn.ReLU(), nn.Flatten(), nn.Linear(6 * 64, 5))


def test_blocks_without_a_relu_are_named_and_can_be_signed_by_a_pattern(caplog):
    with caplog.at_level(logging.WARNING, logger="vsam.quantize.layers"):
        quantize(_pyramid())(IMAGES)
    assert [message.split(":")[0] for message in caplog.messages] == ["1.0.branch.1", "1.1.branch.1"]
    caplog.clear()
    model = quantize(_pyramid(), signed_inputs=["*.branch.1"])
    with caplog.at_level(logging.WARNING, logger="vsam.quantize.layers"):
        model(IMAGES)
    assert not caplog.messages
    signs = [module.signed_input for module in model.modules() if isinstance(module, QuantizedLayer)]
    assert signs == [True, True, False, True, False, False]


def test_what_an_unsigned_layer_loses():
    """Half of a BatchNorm's output, however many bits there are."""
    model = _pyramid()
    expected = model(IMAGES)

    def error(**settings):
        return (quantize(model, 16, 16, 16, **settings)(IMAGES) - expected).norm() / expected.norm()

    assert error(signed_inputs=["1.*.branch.1"]) < 0.01
    assert error() > 0.1
