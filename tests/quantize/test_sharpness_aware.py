"""Quantized models under a sharpness-aware optimizer: one first batch in two passes, steps perturbed or left out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vsam.methods import SAM
from vsam.quantize import QuantizedLayer, parameter_groups, quantize


@pytest.fixture
def model():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=6), nn.ReLU(), nn.Flatten()
    return quantize(nn.Sequential(*layers, nn.Linear(24, 5)))


def steps(model):
    layers = [module for module in model.modules() if isinstance(module, QuantizedLayer)]
    return torch.stack([s.detach() for layer in layers for s in (layer.weight_step, layer.activation_step)])


@pytest.mark.parametrize("perturb_steps", [True, False])
def test_two_passes_one_first_batch(model, perturb_steps):
    inputs, labels = torch.randn(8, 3, 6, 6), torch.randint(5, (8,))
    base = torch.optim.SGD(parameter_groups(model, perturb_steps=perturb_steps), lr=0.0)
    optimizer = SAM(base, model=model, rho=0.5)
    seen = []

    def closure():
        loss = F.cross_entropy(model(inputs), labels)
        seen.append(steps(model))
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    first, perturbed, again, perturbed_again = seen
    assert torch.equal(first, again)
    assert torch.equal(perturbed, perturbed_again)
    assert torch.equal(steps(model), first)
    assert torch.equal(perturbed, first) is not perturb_steps


def test_a_large_perturbation_of_the_steps_gives_finite_gradients(model):
    inputs, labels = torch.randn(8, 3, 6, 6), torch.randint(5, (8,))
    base = torch.optim.SGD(parameter_groups(model), lr=0.01, momentum=0.9)
    optimizer = SAM(base, model=model, rho=100.0)
    lowest = []

    def closure():
        loss = F.cross_entropy(model(inputs), labels)
        lowest.append(steps(model).min().item())
        loss.backward()
        return loss

    for _ in range(20):
        optimizer.step(closure)
    assert min(lowest) < 0
    assert optimizer.num_skipped == 0
    assert all(parameter.isfinite().all() for parameter in model.parameters())
