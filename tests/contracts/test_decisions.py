"""Decisions depend on the own seed and on the gradients only, so that all ranks agree."""

import random

import numpy
import pytest
import torch
from torch import nn

from contract_table import LENGTH, Run, assert_same, every_method, network, seed_everything


def _quiet_network() -> nn.Sequential:
    """The same gradients whatever the global generators do."""
    model = network()
    model[0], model[4] = nn.Identity(), nn.Identity()
    return model


@every_method
def test_global_generators_have_no_say(method: str) -> None:
    plain, disturbed = Run(method, "momentum", model=_quiet_network()), Run(method, "momentum", model=_quiet_network())
    plain.go()
    for number in range(LENGTH):
        seed_everything(1000 + 7 * number)
        disturbed.step(number)
        torch.rand(number), random.random(), numpy.random.rand()
    assert disturbed.samples == plain.samples
    assert [record.s for record in disturbed.records] == [record.s for record in plain.records]
    assert_same(disturbed.weights(), plain.weights())


@every_method
def test_equal_seeds_agree_while_they_take_turns(method: str) -> None:
    left, right = Run(method, "adamw", model=_quiet_network()), Run(method, "adamw", model=_quiet_network())
    for number in range(LENGTH):
        left.step(number)
        right.step(number)
    assert left.samples == right.samples
    assert_same(left.weights(), right.weights())


@pytest.mark.parametrize("method", ["vsam", "vsam-released"])
def test_seeds_matter(method: str) -> None:
    drawn = {tuple(Run(method, seed=seed).go().samples) for seed in range(6)}
    assert len(drawn) > 1


def test_the_seed_of_a_subset_matters() -> None:
    first, second = (Run("esam", model=_quiet_network(), seed=seed).go(last=3).weights() for seed in range(2))
    assert any(not torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_ranks_on_different_data_agree_where_the_rule_needs_no_numbers() -> None:
    """The start phase, the draw at a fixed rate and SAM-k ask no gradient at all."""
    runs = [Run("vsam", model=_quiet_network()) for _ in range(2)]
    for number in range(16):  # up to the first update of s
        runs[0].step(number)
        runs[1].step(number + 5)
    assert runs[0].samples == runs[1].samples


@every_method
def test_nothing_is_drawn_from_the_global_generators(method: str) -> None:
    """The quiet network draws nothing, so they must stand still."""
    run = Run(method, model=_quiet_network())
    torch_state, python, words = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].copy()
    run.go()
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert random.getstate() == python
    assert (numpy.random.get_state()[1] == words).all()
