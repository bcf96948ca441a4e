"""Conversion: the converted layers, their bits, and the two parameter groups."""

import copy

import pytest
import torch
from torch import nn

from vsam.quantize import QuantConv2d, QuantizedLayer, QuantLinear, parameter_groups, quantize


class Residual(nn.Module):
    """A small network with nested names, a shared layer, tied weights and a depthwise convolution."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.ModuleDict({"wide": nn.Conv2d(8, 8, 3, padding=1), "deep": nn.Conv2d(8, 8, 3, 1, 1, 1, 8)})
        self.again = self.block["wide"]
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)
        self.right.weight = self.left.weight
        self.head = nn.Linear(8, 5)

    def forward(self, images):
        hidden = self.norm(self.stem(images)).relu()
        hidden = self.block["deep"](self.block["wide"](hidden).relu()).relu()
        pooled = self.again(hidden).relu().mean((2, 3))
        return self.head(self.right(self.left(pooled).relu()).relu())


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Residual()


def layers(model):
    return {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLayer)}


def test_the_layers_and_their_bits(model):
    bits = {
        name: (type(layer), layer.weight_bits, layer.activation_bits, layer.signed_input)
        for name, layer in layers(quantize(model, 3, 5, 7)).items()
    }
    assert bits == {
        "stem": (QuantConv2d, 7, 7, True),
        "block.wide": (QuantConv2d, 3, 5, False),
        "block.deep": (QuantConv2d, 3, 5, False),
        "left": (QuantLinear, 3, 5, False),
        "right": (QuantLinear, 3, 5, False),
        "head": (QuantLinear, 7, 7, False),
    }


def test_defaults_are_four_bits_and_eight_at_the_ends(model):
    quantized = quantize(model)
    assert quantized.stem.weight_range == (-128, 127)
    assert quantized.stem.activation_range == (-128, 127)
    assert quantized.left.weight_range == (-8, 7)
    assert quantized.left.activation_range == (0, 15)
    assert quantized.head.activation_range == (0, 255)


def test_the_original_and_the_generator_are_left_alone(model):
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    types = [type(module) for module in model.modules()]
    quantized = quantize(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert [type(module) for module in model.modules()] == types
    assert set(model.state_dict()) == set(before)
    with torch.no_grad():
        quantized.stem.weight.zero_()
    assert torch.equal(model.stem.weight, before["stem.weight"])


def test_full_precision_names_and_values_stay(model):
    quantized = quantize(model)
    for name, value in model.state_dict().items():
        assert torch.equal(quantized.state_dict()[name], value)
    new = set(quantized.state_dict()) - set(model.state_dict())
    assert {name.rsplit(".", 1)[1] for name in new} == {"weight_step", "activation_step", "initialised"}


def test_shared_layers_and_tied_weights_stay_so(model):
    quantized = quantize(model)
    assert quantized.again is quantized.block["wide"]
    assert quantized.right.weight is quantized.left.weight
    assert quantized(torch.randn(2, 3, 8, 8)).shape == (2, 5)


def test_thirty_two_bits_are_almost_the_full_precision_model(model):
    quantized = quantize(model, 32, 32, 32)
    images = torch.randn(4, 3, 8, 8)
    signed = quantize(model, 32, 32, 32, signed_inputs=["left"])
    torch.testing.assert_close(quantized(images), model(images), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(signed(images), model(images), rtol=1e-3, atol=1e-3)


def test_a_single_layer_is_a_model_too():
    layer = quantize(nn.Linear(4, 2))
    assert isinstance(layer, QuantLinear)
    assert (layer.weight_bits, layer.signed_input) == (8, True)


def test_layers_can_be_named_signed(model):
    quantized = quantize(model, signed_inputs=["head"])
    assert quantized.head.activation_range == (-128, 127)
    with pytest.raises(ValueError, match=r"signed_inputs names \['tail'\], but the layers are \['stem', "):
        quantize(model, signed_inputs=["tail"])


def test_subclasses_stay_as_they_are():
    """Attention reads the weight of its projection itself, past any forward of that layer."""
    attention = nn.Sequential(nn.Linear(8, 8), nn.MultiheadAttention(8, 2))
    assert list(layers(quantize(attention))) == ["0"]


def test_nothing_to_quantize_is_said(model):
    with pytest.raises(ValueError, match="nothing to quantize"):
        quantize(nn.BatchNorm2d(3))
    with pytest.raises(ValueError, match="already quantized"):
        quantize(quantize(model))
    with pytest.raises(ValueError, match="call quantize"):
        parameter_groups(model)


@pytest.mark.parametrize("perturb_steps", [True, False])
def test_step_sizes_have_a_group_of_their_own(model, perturb_steps):
    quantized = quantize(model)
    weights, steps = parameter_groups(quantized, weight_decay=0.01, perturb_steps=perturb_steps)
    names = {parameter: name for name, parameter in quantized.named_parameters()}
    assert all(names[step].endswith("_step") for step in steps["params"])
    assert not any(names[weight].endswith("_step") for weight in weights["params"])
    assert set(weights["params"]) | set(steps["params"]) == set(names)
    assert len(weights["params"]) + len(steps["params"]) == len(names)
    assert (weights["weight_decay"], steps["weight_decay"]) == (0.01, 0.0)
    assert steps["perturb"] is perturb_steps
    assert weights.get("perturb", True)


def test_groups_decay_a_little_and_perturb_the_steps_unless_told_otherwise(model):
    weights, steps = parameter_groups(quantize(model))
    assert (weights["weight_decay"], steps["weight_decay"], steps["perturb"]) == (1e-4, 0.0, True)


def test_weight_decay_leaves_the_steps_alone(model):
    quantized = quantize(model)
    optimizer = torch.optim.SGD(parameter_groups(quantized, weight_decay=0.5), lr=0.1)
    for parameter in quantized.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert quantized.head.weight_step == quantize(model).head.weight_step
    torch.testing.assert_close(quantized.head.weight, 0.95 * model.head.weight)
    with pytest.raises(ValueError, match=r"weight_decay must not be negative, got -1"):
        parameter_groups(quantized, weight_decay=-1)
