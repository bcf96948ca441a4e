"""Initialisation: Kaiming normal by fan-out, from torch's global generator."""

import math

import pytest
import torch
from torch import nn

from vsam.lab import models

SMALL = ["resnet8", "resnet18", "wrn16-2", "pyramidnet20-48", "mobilenet"]


@pytest.mark.parametrize("name", SMALL)
def test_convolutions_are_normal_by_fan_out(name: str) -> None:
    torch.manual_seed(0)
    for module in models.build(name).modules():
        if isinstance(module, nn.Conv2d):
            # An input value reaches the output channels of its own group only.
            fan_out = module.kernel_size[0] ** 2 * module.out_channels / module.groups
            scaled = module.weight.detach().double() * math.sqrt(fan_out / 2)
            # Five standard errors of the mean, of the variance and of the kurtosis of a normal sample.
            count = scaled.numel()
            assert abs(scaled.mean()) < 5 / math.sqrt(count)
            assert abs(scaled.square().mean() - 1) < 5 * math.sqrt(2 / count)
            assert abs(scaled.pow(4).mean() - 3) < 5 * math.sqrt(96 / count)


@pytest.mark.parametrize("name", SMALL)
def test_norms_start_as_the_identity(name: str) -> None:
    for module in models.build(name).modules():
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()


@pytest.mark.parametrize("name", SMALL)
def test_weights_follow_the_global_seed(name: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(models.build(name).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
