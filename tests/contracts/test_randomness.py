"""Both passes see the same randomness, and the global generators advance as with one pass."""

import random
from collections.abc import Callable

import numpy
import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import (
    BATCHES,
    LENGTH,
    Run,
    assert_same,
    every_method_that,
    every_style,
    generators,
    network,
    seed_everything,
    set_generators,
)


def _record_masks(model: nn.Sequential) -> list[tuple[Tensor, float]]:
    """Return dropout's masks and the jitter of every pass."""
    seen: list[tuple[Tensor, float]] = []
    model[4].register_forward_hook(lambda module, inputs, output: seen.append(((output != 0), factors[-1])))
    factors: list[float] = []
    model[0].register_forward_hook(lambda module, inputs, output: factors.append(float(output[0, 0] / inputs[0][0, 0])))
    model[3] = nn.Identity()  # a zero in front of dropout would look like a dropped unit
    return seen


@every_method_that("repeats the first pass")
@pytest.mark.parametrize("style", ["step", "step_without_closure"])
def test_masks_are_the_same_in_both_passes(method: str, style: str) -> None:
    run = Run(method)
    seen = _record_masks(run.model)
    last: Tensor | None = None
    for number in range(16):
        getattr(run, style)(number)
        assert len(seen) == 1 + run.records[-1].sampled
        assert_same(seen[0], seen[-1])
        assert last is None or not torch.equal(seen[0][0], last)
        last = seen[0][0]
        seen.clear()


def test_where_all_samples_are_kept_the_exemption_ends() -> None:
    """ESAM without SDS repeats the masks too."""
    run = Run("esam", gamma=1.0)
    seen = _record_masks(run.model)
    for number in range(6):
        run.step(number)
        assert len(seen) == 2
        assert_same(seen[0], seen[1])
        seen.clear()


def test_samples_are_chosen_under_the_masks_of_the_first_pass() -> None:
    """The compared losses differ by the weights alone, and the subset's draws begin at the same state."""
    run = Run("esam")
    seen = _record_masks(run.model)
    for number in range(6):
        run.step(number)
        first, choosing, subset = seen
        assert_same(choosing, first)
        assert len(subset[0]) == 4
        assert subset[1] == pytest.approx(first[1])
        seen.clear()


@every_style
def test_generators_advance_as_with_one_pass(method: str, style: str) -> None:
    run, shadow = Run(method), network()
    for number in range(16):
        before = generators()
        shadow(BATCHES[number % LENGTH][0])
        expected = generators()
        set_generators(before)
        getattr(run, style)(number)
        assert_same(generators(), expected)


def test_draws_of_the_closure_itself_are_repeated() -> None:
    """Augmentation inside the closure is part of the pass."""
    run, seen = Run("sam"), []

    def closure() -> Tensor:
        seen.append((torch.rand(2), random.random(), float(numpy.random.rand())))
        loss = run.loss(0)
        loss.backward()
        return loss

    run.optimizer.step(closure)
    assert_same(seen[0], seen[1])


def test_a_second_pass_that_draws_more_leaves_no_trace() -> None:
    """The generators end where the first pass left them, whatever the second drew."""
    run, states = Run("sam"), []

    def closure() -> Tensor:
        loss = run.loss(0)
        loss.backward()
        torch.rand(len(states) + 1), [random.random() for _ in states], numpy.random.rand(len(states))
        states.append(generators())
        return loss

    run.optimizer.step(closure)
    assert_same(generators(), states[0])
    assert not torch.equal(states[1]["torch"], states[0]["torch"])


def _two_views(model: nn.Module, number: int) -> Tensor:
    """Two forwards of one batch before one backward, as consistency losses and contrastive ones have."""
    inputs, _ = BATCHES[number]
    return (model(inputs) - model(inputs)).square().mean() + model(inputs).square().mean()


@pytest.mark.parametrize("clears", ["at the beginning", "before backward"])
def test_several_forwards_before_one_backward(clears: str) -> None:
    """A loop without a closure repeats the masks of all of them, in their order."""
    run = Run("sam")
    seen = _record_masks(run.model)
    for number in range(3):
        if clears == "at the beginning":
            run.optimizer.zero_grad()
        loss = _two_views(run.model, number)
        if clears == "before backward":
            run.optimizer.zero_grad()
        loss.backward()
        assert run.optimizer.perturb()
        _two_views(run.model, number).backward()
        run.optimizer.step()
        assert_same(seen[:3], seen[3:])
        seen.clear()


def test_several_backwards_before_one_step() -> None:
    """Micro-batches in a loop without a closure: the note is of the first of them."""
    run = Run("sam")
    seen = _record_masks(run.model)
    for _ in range(2):
        run.optimizer.zero_grad()
        for number in range(3):
            run.loss(number).backward()
        assert run.optimizer.perturb()
        for number in range(3):
            run.loss(number).backward()
        run.optimizer.step()
        assert_same(seen[:3], seen[3:])
        seen.clear()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_forward_that_came_to_nothing_is_forgotten(set_to_none: bool) -> None:
    """A batch that was given up, or a look at the training loss, does not lend its masks to the next step."""
    run = Run("sam")
    run.step_without_closure(0)
    seen = _record_masks(run.model)
    run.loss(1)
    run.optimizer.zero_grad(set_to_none)
    seen.clear()
    run.loss(2).backward()
    assert run.optimizer.perturb()
    run.loss(2).backward()
    run.optimizer.step()
    assert_same(seen[0], seen[1])


def _quiet(model: nn.Module) -> None:
    with torch.no_grad():
        model(BATCHES[5][0])


def _evaluated(model: nn.Module) -> None:
    model.eval()
    model(BATCHES[5][0])
    model.train()


@pytest.mark.parametrize("look", [_quiet, _evaluated])
@pytest.mark.parametrize("when", ["before the first pass", "before perturb"])
def test_looking_at_the_model_does_not_disturb(look: Callable[[nn.Module], None], when: str) -> None:
    run = Run("sam")
    seen = _record_masks(run.model)
    for number in range(2):
        run.optimizer.zero_grad()
        if when == "before the first pass":
            look(run.model)
        seen.clear()
        run.loss(number).backward()
        first = seen[0]
        if when == "before perturb":
            look(run.model)
        assert run.optimizer.perturb()
        seen.clear()
        run.loss(number).backward()
        run.optimizer.step()
        assert_same(first, seen[0])


def test_without_a_model_the_closure_still_repeats_them() -> None:
    seed_everything(0)
    model = network()
    seen = _record_masks(model)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1))

    def closure() -> Tensor:
        loss = model(BATCHES[0][0]).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert_same(seen[0], seen[1])
