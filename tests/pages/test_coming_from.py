"""The diffs from other implementations of SAM keep the weights, or train if the other one is not installed."""

from typing import Any

import pytest
import torch
from torch import nn

import vsam
from pages.read import Block, blocks, sides
from pages.test_snippets import surroundings

USUAL, PYTORCH_OPTIMIZER, COMPOSER, TIMM, KERAS = blocks("docs/coming-from.md", "diff")


class UsualSAM(torch.optim.Optimizer):
    """SAM with the two steps that most programs call."""

    def __init__(self, parameters: Any, kind: type, rho: float, **settings: Any) -> None:
        super().__init__(parameters, {"rho": rho, **settings})
        self.base_optimizer = kind(self.param_groups, **settings)

    def parameters(self) -> list[nn.Parameter]:
        return [one for group in self.param_groups for one in group["params"]]

    @torch.no_grad()
    def first_step(self, zero_grad: bool) -> None:
        self.before = [one.clone() for one in self.parameters()]
        norm = torch.stack([one.grad.norm() for one in self.parameters()]).norm() + 1e-12
        for one in self.parameters():
            one.add_(one.grad * (self.param_groups[0]["rho"] / norm))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self, zero_grad: bool) -> None:
        for one, before in zip(self.parameters(), self.before, strict=True):
            one.copy_(before)
        self.base_optimizer.step()
        self.zero_grad()


def set_statistics(momentum: float) -> Any:
    def change(model: nn.Module) -> None:
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm1d):
                layer.momentum = momentum

    return change


def run(block: Block, side: int) -> dict[str, Any]:
    names = surroundings()
    del names["optimizer"]
    names |= {"SAM": UsualSAM, "enable_running_stats": set_statistics(0.1), "disable_running_stats": set_statistics(0)}
    names["create_optimizer_v2"] = lambda model, opt, **settings: torch.optim.SGD(model.parameters(), **settings)
    exec(sides(block.text)[side], names)
    return names


@pytest.mark.parametrize("block", [USUAL, PYTORCH_OPTIMIZER], ids=str)
def test_both_sides_end_with_the_same_weights(block: Block) -> None:
    if block is PYTORCH_OPTIMIZER:
        pytest.importorskip("pytorch_optimizer")
    before, after = run(block, 0)["model"], run(block, 1)["model"]
    assert not torch.equal(after[0].weight, surroundings()["model"][0].weight)
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    if block is USUAL:
        torch.testing.assert_close(before[1].running_mean, after[1].running_mean)


@pytest.mark.parametrize(("block", "num_samples"), [(COMPOSER, 1), (TIMM, 0), (KERAS, 1)], ids=str)
def test_our_side_of_the_others_trains(block: Block, num_samples: int) -> None:
    optimizer = run(block, 1)["optimizer"]
    assert type(optimizer) is vsam.SAM
    assert optimizer.num_samples == num_samples
    assert optimizer.expected_cost == (1.1 if block is COMPOSER else 2)


def test_what_the_page_says_about_two_mistakes() -> None:
    names = run(PYTORCH_OPTIMIZER, 1)
    names["closure"]()
    with pytest.raises(RuntimeError, match="accumulated"):
        names["optimizer"].step(names["closure"])
    names["optimizer"].zero_grad()
    with pytest.warns(RuntimeWarning, match="No parameter has a gradient"):
        names["optimizer"].step(lambda: names["criterion"](names["model"](names["inputs"]), names["targets"]))
