"""Quantized layers: what they compute, when the input's step size is set, and that they train."""

import copy
import io
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vsam.quantize import QuantConv2d, QuantLinear, lsq, quantize


def network():
    """Convolution, depthwise convolution, BatchNorm, linear: in float32, with a fixed seed."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 5),
    )


def batch(seed=1, size=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, 8, 8, generator=generator), torch.randint(5, (size,), generator=generator)


def quantized_layers(model):
    return [module for module in model.modules() if isinstance(module, QuantConv2d | QuantLinear)]


def test_a_convolution_computes_with_both_quantized():
    layer = QuantConv2d(4, 6, 3, stride=2, padding=1, groups=2, weight_bits=3, activation_bits=5)
    inputs = torch.rand(2, 4, 7, 7)
    outputs = layer(inputs)
    weight = lsq(layer.weight, layer.weight_step, -4, 3)
    activation = lsq(inputs, layer.activation_step, 0, 31)
    expected = F.conv2d(activation, weight, layer.bias, stride=2, padding=1, groups=2)
    torch.testing.assert_close(outputs, expected)
    assert not torch.equal(activation, inputs)


def test_step_sizes_start_where_they_should():
    layer = QuantLinear(10, 4, weight_bits=4, activation_bits=4)
    assert layer.weight_step.item() == pytest.approx(2 * layer.weight.abs().mean().item() / math.sqrt(7))
    inputs = torch.rand(5, 10)
    layer(inputs)
    assert layer.activation_step.item() == pytest.approx(2 * inputs.mean().item() / math.sqrt(15))


@pytest.mark.parametrize("shape", [(5, 10), (5, 3, 10), (10,)])
def test_gradients_of_the_steps_are_scaled(shape):
    layer = QuantLinear(10, 4, bias=False, weight_bits=4, activation_bits=4).double()
    inputs = torch.rand(shape, dtype=torch.float64)
    layer(inputs).sum().backward()
    step, activation_step = (s.detach().requires_grad_() for s in (layer.weight_step, layer.activation_step))
    numel_of_one = math.prod(shape[1:]) if len(shape) > 1 else 10
    weight = lsq(layer.weight, step, -8, 7, 1 / math.sqrt(40 * 7))
    activation = lsq(inputs, activation_step, 0, 15, 1 / math.sqrt(numel_of_one * 15))
    F.linear(activation, weight).sum().backward()
    assert layer.weight_step.grad.item() == pytest.approx(step.grad.item(), rel=1e-9)
    assert layer.activation_step.grad.item() == pytest.approx(activation_step.grad.item(), rel=1e-9)


@pytest.mark.parametrize("shape", [(5, 2, 3, 3), (2, 3, 3)])
def test_gradients_of_the_steps_of_a_convolution_are_scaled(shape):
    """With the numbers of one image, also where an image comes without a batch."""
    layer = QuantConv2d(2, 4, 2, bias=False).double()
    inputs = torch.rand(shape, dtype=torch.float64)
    layer(inputs).sum().backward()
    step, activation_step = (s.detach().requires_grad_() for s in (layer.weight_step, layer.activation_step))
    weight = lsq(layer.weight, step, -8, 7, 1 / math.sqrt(4 * 2 * 2 * 2 * 7))
    F.conv2d(lsq(inputs, activation_step, 0, 15, 1 / math.sqrt(2 * 3 * 3 * 15)), weight).sum().backward()
    assert layer.weight_step.grad.item() == pytest.approx(step.grad.item(), rel=1e-9)
    assert layer.activation_step.grad.item() == pytest.approx(activation_step.grad.item(), rel=1e-9)


def test_the_first_training_batch_and_no_other_sets_the_input_step():
    model = quantize(network())
    model(batch(1)[0])
    steps = [layer.activation_step.item() for layer in quantized_layers(model)]
    assert all(layer.initialised for layer in quantized_layers(model))
    model(batch(1)[0])
    model(100 * batch(2)[0])
    assert [layer.activation_step.item() for layer in quantized_layers(model)] == steps


def test_evaluating_before_any_training_batch_is_an_error():
    model = quantize(network()).eval()
    with pytest.raises(RuntimeError, match=r"QuantConv2d\(3, 8.*has no step size .* Train for one step"):
        model(batch()[0])
    model.train()(batch()[0])
    assert model.eval()(batch()[0]).isfinite().all()


def test_a_batch_that_is_not_finite_leaves_the_step_to_the_next():
    layer = QuantLinear(3, 2)
    layer(torch.tensor([[1.0, math.inf, 2.0]]))
    assert not layer.initialised
    layer(torch.tensor([[1.0, 3.0, 2.0]]))
    assert layer.activation_step.item() == pytest.approx(4 / math.sqrt(15))


def test_zeros_get_a_usable_step():
    layer = QuantLinear(3, 2)
    nn.init.zeros_(layer.weight)
    again = QuantLinear(3, 2)
    again.load_state_dict(layer.state_dict())
    again.start_quantizing(4, 4, signed_input=False)
    assert again.weight_step.item() == pytest.approx(1 / 7)
    again(torch.zeros(4, 3))
    assert again.activation_step.item() == pytest.approx(1 / 15)


def test_state_dict_carries_the_initialised_steps():
    model = quantize(network())
    model(batch()[0])
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    resumed = quantize(network())
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(resumed.eval()(batch(3)[0]), model.eval()(batch(3)[0]))


def test_loading_an_untrained_state_asks_for_a_first_batch_again():
    fresh = quantize(network()).state_dict()
    model = quantize(network())
    for _ in range(2):
        model(10 * batch()[0])
    model.load_state_dict(fresh)
    model(batch()[0])
    expected = quantize(network())
    expected(batch()[0])
    assert model[0].activation_step == expected[0].activation_step


def test_a_copy_is_the_same_and_independent():
    model = quantize(network())
    model(batch()[0])
    copied = copy.deepcopy(model)
    assert torch.equal(copied.eval()(batch()[0]), model.eval()(batch()[0]))
    with torch.no_grad():
        copied[3].weight_step.mul_(2)
    assert not torch.equal(copied(batch()[0]), model(batch()[0]))


def test_channels_last_gives_the_same():
    inputs, _ = batch()
    model = quantize(network())
    model(inputs)
    model.eval()
    expected = model(inputs)
    model.to(memory_format=torch.channels_last)
    weight = model[0].quantized_weight()
    assert weight.is_contiguous(memory_format=torch.channels_last)
    activation = model[0].quantized_input(inputs.to(memory_format=torch.channels_last))
    assert activation.is_contiguous(memory_format=torch.channels_last)
    outputs = model(inputs.to(memory_format=torch.channels_last))
    torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-3)


def test_under_autocast_it_trains_close_to_float32():
    inputs, labels = batch()
    model = quantize(network(), 8, 8)
    model(inputs)
    gradients = []
    for is_enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_enabled):
            outputs = model(inputs)
            loss = F.cross_entropy(outputs, labels)
        loss.backward()
        assert outputs.dtype == (torch.bfloat16 if is_enabled else torch.float32)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert gradients[1].dtype == torch.float32
    assert F.cosine_similarity(*gradients, dim=0) > 0.95


def test_it_learns_with_four_bits():
    inputs, labels = batch(size=32)
    inputs = inputs + 2 * torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))[labels]
    model = quantize(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    assert all(p.grad is not None for p in model.parameters())


def test_perturbed_and_put_back_it_is_as_before():
    """Run a second pass on the same batch with all step sizes pushed below zero, as a sharpness-aware optimizer may."""
    inputs, labels = batch()
    model = quantize(network())
    F.cross_entropy(model(inputs), labels).backward()
    before = copy.deepcopy(model.state_dict())
    with torch.no_grad():
        for layer in quantized_layers(model):
            layer.weight_step.sub_(2 * layer.weight_step + 0.01)
            layer.activation_step.sub_(2 * layer.activation_step + 0.01)
    model.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert any(layer.weight.grad.abs().sum() > 0 for layer in quantized_layers(model))
    for name, value in before.items():
        if name.endswith("step"):
            model.state_dict()[name].copy_(value)
    assert torch.equal(model[0].quantized_weight(), lsq(model[0].weight, before["0.weight_step"], -128, 127))


@pytest.mark.parametrize("bits", [1, 33, 0, 4.0, True, "4"])
def test_bits_are_checked(bits):
    for name in ("weight_bits", "activation_bits"):
        with pytest.raises(ValueError, match=f"{name} must be (an integer|at least 2|at most 32), got {bits!r}"):
            QuantLinear(3, 2, **{name: bits})
    for name in ("weight_bits", "activation_bits", "first_last_bits"):
        with pytest.raises(ValueError, match=f"{name} must be (an integer|at least 2|at most 32), got {bits!r}"):
            quantize(network(), **{name: bits})
