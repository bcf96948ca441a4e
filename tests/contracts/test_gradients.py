"""Missing, late, frozen, unused and sparse gradients, and micro-batches inside the closure."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import (
    METHODS,
    ORDINARY,
    Run,
    argument,
    assert_same,
    every_early_looping_method,
    every_looping_method,
    every_method,
    every_method_that,
    every_ordinary_case,
    network,
)


class _Parts(nn.Module):
    """A layer that is always used, and others that the test switches on and off."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.used, self.extra, self.unused = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(3, 4)
        self.with_extra = False

    def forward(self, inputs: Tensor) -> Tensor:
        return self.used(inputs) + (self.extra(inputs) if self.with_extra else 0)


class _Training:
    def __init__(self, method: str, base: str = "momentum") -> None:
        self.method, self.model = method, _Parts()
        self.optimizer = METHODS[method](ORDINARY[base](self.model.parameters()), model=self.model)
        self.inputs = torch.randn(20, 6, 3, generator=torch.Generator().manual_seed(1))

    def step(self, number: int) -> None:
        def losses(keep: Tensor | None = None) -> Tensor:
            inputs = self.inputs[number] if keep is None else self.inputs[number][keep]
            return (self.model(inputs) - 1).square().mean(dim=1)

        self.optimizer.step(argument(self.method, losses))

    def weights(self, layer: nn.Module) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in layer.parameters()]


@every_ordinary_case
def test_unused_and_late_parameters(method: str, base: str) -> None:
    run = _Training(method, base)
    unused, extra = run.weights(run.model.unused), run.weights(run.model.extra)
    for number in range(7):
        run.step(number)
    assert_same(run.weights(run.model.unused), unused)
    assert_same(run.weights(run.model.extra), extra)
    run.model.with_extra = True
    for number in range(7, 20):
        run.step(number)
    assert_same(run.weights(run.model.unused), unused)
    assert not torch.equal(run.model.extra.weight, extra[0])
    assert all(p.grad is None for p in run.model.unused.parameters())


@every_ordinary_case
def test_parameters_that_come_and_go(method: str, base: str) -> None:
    run = _Training(method, base)
    for number in range(20):
        run.model.with_extra = number % 3 == 1
        before = run.weights(run.model.extra)
        run.step(number)
        if not run.model.with_extra:
            assert_same(run.weights(run.model.extra), before)
    assert run.optimizer.num_skipped == 0


@every_ordinary_case
@pytest.mark.parametrize("at", [0, 6])
def test_frozen_parameters_stay(method: str, base: str, at: int) -> None:
    """Also those frozen in the middle of the run, which have momentum and a PSF."""
    run = _Training(method, base)
    run.model.with_extra = True
    for number in range(at):
        run.step(number)
    run.model.extra.requires_grad_(False)
    frozen = run.weights(run.model.extra)
    for number in range(at, 14):
        run.step(number)
        assert_same(run.weights(run.model.extra), frozen)
        assert not any(p.requires_grad for p in run.model.extra.parameters())
    run.model.extra.requires_grad_(True)
    for number in range(14, 18):
        run.step(number)
    assert not torch.equal(run.model.extra.weight, frozen[0])


@every_method_that("samples its first step")
def test_a_frozen_parameter_is_not_moved_by_the_perturbation(method: str) -> None:
    run = Run(method)
    run.model[1].requires_grad_(False)
    before, seen = run.model[1].weight.detach().clone(), []
    run.optimizer.step(run.closure(0, before=lambda: seen.append(run.model[1].weight.detach().clone())))
    assert len(seen) >= 2
    assert_same(seen, [before] * len(seen))


@every_early_looping_method
def test_a_gradient_left_over_from_before_the_freeze_moves_nothing(method: str) -> None:
    """In a loop without a closure the old gradient may still lie there when the perturbation is made."""
    run = Run(method)
    run.loss(0).backward()
    run.model[1].requires_grad_(False)
    before = run.model[1].weight.detach().clone()
    assert run.optimizer.perturb()
    assert_same(run.model[1].weight.detach(), before)
    assert not run.model[1].weight.requires_grad


@every_method
def test_sparse_gradients_are_refused_by_name(method: str) -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2))
    before = [p.detach().clone() for p in model.parameters()]

    def losses(keep: Tensor | None = None) -> Tensor:
        return model(torch.tensor([1, 2])).square().mean(dim=1)

    named = METHODS[method](torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    with pytest.raises(RuntimeError, match=r"0\.weight has a sparse gradient.*sparse=False"):
        named.step(argument(method, losses))
    unnamed = METHODS[method](torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(RuntimeError, match=r"shape \(5, 3\) has a sparse gradient"):
        unnamed.step(argument(method, losses))
    assert_same([p.detach() for p in model.parameters()], before)


@every_looping_method
@pytest.mark.parametrize("base", ORDINARY)
def test_micro_batches_inside_the_closure(method: str, base: str) -> None:
    """Two halves with half the loss each are the whole, where no layer looks at the batch."""

    def make() -> nn.Sequential:
        model = network().double()
        model[0], model[2], model[4] = nn.Identity(), nn.Identity(), nn.Identity()
        return model

    whole, halves = Run(method, base, model=make()), Run(method, base, model=make())

    def closure_of(run: Run, number: int, num_parts: int) -> Callable[[], Tensor]:
        inputs = torch.randn(8, 5, generator=torch.Generator().manual_seed(number), dtype=torch.float64)

        def closure() -> Tensor:
            total = torch.zeros(())
            for part in inputs.chunk(num_parts):
                loss = run.model(part).square().mean() / num_parts
                loss.backward()
                total = total + loss.detach()
            return total

        return closure

    for number in range(16):
        one = whole.optimizer.step(closure_of(whole, number, 1))
        other = halves.optimizer.step(closure_of(halves, number, 2))
        torch.testing.assert_close(one, other)
    assert whole.optimizer.num_samples == halves.optimizer.num_samples
    torch.testing.assert_close(whole.weights(), halves.weights(), rtol=1e-7, atol=1e-9)


def test_gradients_of_the_caller_are_not_kept() -> None:
    """Gradients from before the step raise an error if they were set by hand, and are cleared if a step left them."""
    clean, dirty = Run("sam"), Run("sam")
    clean.go(last=3)
    Run("sam")  # seeds the generators again
    for number in range(3):
        kept = [parameter.grad for parameter in dirty.model.parameters()]
        for parameter in dirty.model.parameters():
            parameter.grad = torch.full_like(parameter, 1e3)
        before = dirty.everything()
        with pytest.raises(RuntimeError, match="accumulated before step"):
            dirty.step(number)
        assert_same(dirty.everything(), before)
        for parameter, gradient in zip(dirty.model.parameters(), kept, strict=True):
            parameter.grad = gradient
        dirty.step(number)
    assert_same(dirty.weights(), clean.weights())


def test_parameters_outside_the_model_are_trained_too() -> None:
    """A learned temperature of the loss, say."""
    model, scale = nn.Linear(3, 1), nn.Parameter(torch.ones(1))
    optimizer = vsam.VSAM(torch.optim.SGD([*model.parameters(), scale], lr=0.1), model=model)

    def closure() -> Tensor:
        loss = (scale * model(torch.ones(2, 3)) - 1).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert float(scale.detach()) != 1
