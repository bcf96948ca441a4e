"""Export: integers times a scale are the weights in use, bit for bit, and the bytes add up."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vsam.quantize import QuantLinear, integer_weights, quantize, size_report


def trained(weight_bits, dtype=torch.float32):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=6), nn.Flatten()
    model = quantize(nn.Sequential(*layers, nn.Linear(24, 5, bias=False)).to(dtype), weight_bits)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(8, 3, 6, 6, dtype=dtype)), torch.randint(5, (8,))).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [2, 4, 8, 16, 32])
def test_integers_times_scale_are_the_weights_in_use_bit_for_bit(bits, dtype):
    model = trained(bits, dtype)
    exported = integer_weights(model)
    assert list(exported) == ["0", "3", "5"]
    for name, (integers, scale) in exported.items():
        layer = model.get_submodule(name)
        assert integers.dtype == (torch.int8 if layer.weight_bits <= 8 else torch.int32)
        assert scale > 0
        assert torch.equal(integers.to(scale.dtype) * scale, layer.quantized_weight())
        assert integers.min() >= -(2 ** (layer.weight_bits - 1))
        assert integers.max() <= 2 ** (layer.weight_bits - 1) - 1
        assert len(integers.unique()) > 1


@pytest.mark.parametrize("bits", [4, 32])
@pytest.mark.parametrize("step", [1e-9, -0.05, 0.0])
def test_clipped_weights_and_pushed_steps_export_too(bits, step):
    layer = QuantLinear(50, 2, weight_bits=bits, signed_input=True)
    with torch.no_grad():
        layer.weight.mul_(100)
        layer.weight_step.fill_(step)
    ((integers, scale),) = integer_weights(layer).values()
    assert torch.equal(integers.float() * scale, layer.quantized_weight())
    assert scale > 0
    if abs(step) < 1e-3:
        assert (integers.min(), integers.max()) == layer.weight_range


def test_sizes_in_bytes():
    report = size_report(trained(4))
    by_name = {layer.name: layer for layer in report.layers}
    assert [(layer.weight_bits, layer.activation_bits) for layer in report.layers] == [(8, 8), (4, 4), (8, 8)]
    stem, depthwise, head = by_name["0"], by_name["3"], by_name["5"]
    assert (stem.full_bytes, stem.quantized_bytes) == (162 * 4 + 24, 162 + 24 + 8)
    assert (depthwise.full_bytes, depthwise.quantized_bytes) == (54 * 4 + 24, 27 + 24 + 8)
    assert (head.full_bytes, head.quantized_bytes) == (120 * 4, 120 + 8)
    normalisation = 4 * 6 * 4 + 8
    assert report.rest_bytes == normalisation
    assert report.full_bytes == normalisation + 672 + 240 + 480
    assert report.quantized_bytes == normalisation + 194 + 59 + 128


def test_odd_bits_are_packed_and_rounded_up():
    (layer,) = size_report(QuantLinear(5, 3, bias=False, weight_bits=3)).layers
    assert layer.quantized_bytes == math.ceil(45 / 8) + 8


def test_full_precision_size_is_that_of_the_original_model():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(96, 5))
    tensors = model.state_dict().values()
    assert size_report(quantize(model)).full_bytes == sum(t.numel() * t.element_size() for t in tensors)


def test_a_model_without_quantized_layers_is_refused():
    for function in (integer_weights, size_report):
        with pytest.raises(ValueError, match="call quantize"):
            function(nn.Linear(2, 2))
