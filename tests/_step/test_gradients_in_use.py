"""A closure refuses gradients that somebody accumulated, and no others: those that a step has used do not count."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import vsam

BASES: dict[str, Callable[[list[nn.Parameter]], Any]] = {
    "one": lambda parameters: SGD(parameters, lr=0.1),
    "fused": lambda parameters: AdamW(parameters, lr=0.1, fused=True),
    "joined": lambda parameters: [SGD(parameters[:2], lr=0.1), AdamW(parameters[2:], lr=0.1)],
}


class Run:
    def __init__(self, base: str) -> None:
        self.values = [nn.Parameter(torch.ones(3) * (i + 1)) for i in range(4)]
        self.optimizer = vsam.SAM(BASES[base](self.values))

    def backward(self, *positions: int) -> Tensor:
        loss = sum(self.values[i].square().sum() for i in positions or range(4))
        loss.backward()  # type: ignore[union-attr]
        return loss  # type: ignore[return-value]

    def step(self) -> None:
        self.optimizer.step(self.backward)

    def refuses(self) -> bool:
        """Return True if the next step raises an error and changes nothing."""
        before, failure = self.optimizer.num_samples, ""
        try:
            self.step()
        except RuntimeError as error:
            failure = str(error)
        is_refused = "accumulated" in failure
        assert is_refused is bool(failure) is (self.optimizer.num_samples == before)
        return is_refused


@pytest.fixture(params=BASES)
def run(request: pytest.FixtureRequest) -> Run:
    return Run(request.param)


def test_there_is_nothing_accumulated_at_first_and_after_steps(run: Run) -> None:
    assert [run.refuses() for _ in range(3)] == [False] * 3


@pytest.mark.parametrize("num_steps", [0, 2])
@pytest.mark.parametrize("position", range(4))
def test_accumulation_is_noticed_wherever_it_happens(run: Run, position: int, num_steps: int) -> None:
    for _ in range(num_steps):
        run.step()
    run.backward(position)
    assert run.refuses()
    assert run.refuses()
    run.optimizer.zero_grad()
    assert not run.refuses()


def test_a_gradient_that_replaces_a_used_one_is_noticed(run: Run) -> None:
    run.step()
    run.values[0].grad = None
    assert not run.refuses()
    run.values[0].grad = torch.ones(3)
    assert run.refuses()


def test_a_base_that_the_user_steps_has_used_its_gradients(run: Run) -> None:
    run.backward()
    run.optimizer.base.step()
    assert not run.refuses()
    run.backward()
    assert run.refuses()


def test_two_wrappers_use_each_others_gradients(run: Run) -> None:
    run.step()
    first, run.optimizer = run.optimizer, vsam.SAM(run.optimizer.base)
    for _ in range(2):
        assert not run.refuses()
        run.backward()
        assert run.refuses()
        run.optimizer.zero_grad()
        run.optimizer, first = first, run.optimizer


@pytest.mark.parametrize("set_to_none", [True, False])
def test_cleared_gradients_are_not_accumulated_and_new_ones_are(run: Run, set_to_none: bool) -> None:
    run.backward()
    run.optimizer.base.zero_grad(set_to_none)
    assert not run.refuses()
    run.optimizer.zero_grad(set_to_none)
    run.backward(3)
    assert run.refuses()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_counts(run: Run, bad: float) -> None:
    run.step()
    run.optimizer.zero_grad(False)
    run.values[-1].grad = torch.full((3,), bad)
    assert run.refuses()


def test_a_sparse_gradient_counts() -> None:
    embedding = nn.Embedding(5, 2, sparse=True)
    optimizer = vsam.SAM(SGD(embedding.parameters(), lr=0.1))
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="accumulated"):
        optimizer.step(lambda: None)


def test_gradients_that_a_hook_of_the_base_replaces_are_used() -> None:
    model = nn.Linear(3, 2)
    base = SGD(model.parameters(), lr=0.1)

    def centre(*_: object) -> None:
        assert model.weight.grad is not None
        model.weight.grad = model.weight.grad - model.weight.grad.mean()

    base.register_step_pre_hook(centre)
    optimizer = vsam.SAM(base, model=model)
    for _ in range(3):
        optimizer.step(lambda: model(torch.ones(4, 3)).square().sum().backward())
    assert optimizer.num_samples == 3


def test_gradients_of_a_skipped_step_are_used(run: Run) -> None:
    def closure() -> None:
        run.backward()
        run.values[1].grad = torch.full((3,), torch.nan)

    with pytest.warns(RuntimeWarning, match="skipped"):
        _ = run.optimizer.step(closure), run.optimizer.num_skipped
    assert not run.refuses()


def test_gradients_are_freed_when_they_are_cleared(run: Run) -> None:
    run.step()
    alive = [weakref.ref(value.grad) for value in run.values]
    run.optimizer.zero_grad()
    assert [reference() for reference in alive] == [None] * 4


def test_wrapping_and_loading_again_and_again_leaves_one_hook_on_the_base() -> None:
    weight = nn.Parameter(torch.ones(2))
    base: Optimizer = SGD([weight], lr=0.1)
    for _ in range(3):
        optimizer = vsam.SAM(base)
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step(lambda: weight.sum().backward())
        assert len(base._optimizer_step_post_hooks) == 1


# Gradients set by hand on tensors without `requires_grad`


def _by_hand(with_closure: bool, num_steps: int = 3) -> list[list[float]]:
    """The weights after each step, where the second tensor has a gradient that no backward pass writes to."""
    weight, table = nn.Parameter(torch.ones(2)), torch.ones(2)
    optimizer, seen = vsam.SAM(SGD([weight, table], lr=0.5), rho=0.0), []
    for _ in range(num_steps):
        optimizer.zero_grad()
        if with_closure:
            table.grad = torch.ones(2)
            optimizer.step(lambda: weight.sum().backward())
        else:
            weight.sum().backward()
            table.grad = torch.ones(2)
            assert optimizer.perturb()
            assert table.grad is not None
            weight.sum().backward()
            optimizer.step()
        assert table.grad is not None
        seen.append([*weight.tolist(), *table.tolist()])
    return seen


@pytest.mark.parametrize("with_closure", [True, False])
def test_a_gradient_set_by_hand_reaches_the_base(with_closure: bool) -> None:
    assert _by_hand(with_closure) == [[0.5] * 4, [0.0] * 4, [-0.5] * 4]


def test_a_gradient_set_by_hand_alone_reaches_the_base() -> None:
    table = torch.ones(2)
    optimizer = vsam.SAM(SGD([table], lr=0.5))
    table.grad = torch.ones(2)
    optimizer.step(lambda: None)
    assert table.tolist() == [0.5, 0.5]
