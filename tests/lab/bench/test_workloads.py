"""Everybody trains the same thing."""

import pytest
import torch
from torch import nn

from lab.bench.made import TINY
from vsam.lab.bench.workloads import NUM_BATCHES, WORKLOADS


def num_tensors(model: nn.Module) -> int:
    return len(list(model.parameters()))


def test_the_mlp_has_102_tensors() -> None:
    assert num_tensors(WORKLOADS["mlp"].build().model) == 102


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pass_gives_every_tensor_a_finite_gradient(name: str) -> None:
    if name == "resnet18":
        pytest.skip("takes seconds, and is resnet20 but larger")
    problem = WORKLOADS[name].build()
    problem.forward_backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in problem.model.parameters())


def test_gradients_of_the_deep_network_are_no_subnormal_numbers() -> None:
    problem = WORKLOADS["mlp"].build()
    problem.forward_backward()
    assert all(p.grad is not None and 1e-6 < p.grad.norm() < 1e6 for p in problem.model.parameters())


def test_copies_are_equal_and_draw_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    one, other = TINY.build(), TINY.build()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(*pair) for pair in zip(one.model.parameters(), other.model.parameters(), strict=True))
    assert torch.equal(one.inputs, other.inputs)
    assert torch.equal(one.targets, other.targets)


def test_batches_come_in_turn() -> None:
    problem = TINY.build()
    seen = []
    for _ in range(NUM_BATCHES + 1):
        seen.append(problem.inputs)
        problem.next_batch()
    assert len({id(inputs) for inputs in seen}) == NUM_BATCHES
    assert seen[0] is seen[-1]


def test_losses_of_some_examples() -> None:
    problem = TINY.build()
    problem.model.eval()  # or BatchNorm would see another batch
    keep = torch.tensor([0, 3])
    torch.testing.assert_close(problem.losses(keep), problem.losses()[keep])
