"""A small network with LoRA, its batches and its bases, for the tests of Bi-LoRA."""

from itertools import pairwise
from typing import Any

import peft
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import oracles

SIZES = (6, 8, 8, 4)


def make(is_float64: bool = True, **changes: Any) -> Any:
    """A small network with LoRA of ranks 3, 2 and 3."""
    torch.manual_seed(0)
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(SIZES)]
    network = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
    settings = {"r": 3, "lora_alpha": 5, "rank_pattern": {"2": 2}, "target_modules": ["0", "2", "4"], **changes}
    model = peft.get_peft_model(network, peft.LoraConfig(**settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return model.double() if is_float64 else model


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    return list(oracles.flat_batches(seed=5, count=count))


def momentum(model: nn.Module, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01, **settings)


def adamw(model: nn.Module, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, **settings)


def run(optimizer: torch.optim.Optimizer, model: nn.Module, found: list[tuple[Tensor, Tensor]]) -> None:
    model.train()
    for inputs, labels in found:
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def auxiliary(optimizer: Any) -> list[Tensor]:
    """A₂ and B₂ of all layers."""
    return [p.detach() for group in optimizer.param_groups if group["maximize"] for p in group["params"]]


def assert_same(one: Any, other: Any) -> None:
    """To the bit."""
    assert all(map(torch.equal, weights(one[0]), weights(other[0])))
    assert all(map(torch.equal, auxiliary(one[1]), auxiliary(other[1])))
