"""A budget is spent exactly, whatever the other settings, on resume too; a target is the same in other words."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import vsam
from vsam.budget import check_budget


def _optimizer(**options: Any) -> tuple[vsam.VSAM, nn.Parameter]:
    weight = nn.Parameter(torch.ones(3))
    return vsam.VSAM(torch.optim.SGD([weight], lr=0.01), **options), weight


def _run(optimizer: vsam.VSAM, weight: nn.Parameter, num_steps: int) -> list[bool]:
    samples = []

    def closure() -> Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss

    for _ in range(num_steps):
        optimizer.step(closure)
        assert optimizer.last is not None
        samples.append(optimizer.last.sampled)
    return samples


@settings(max_examples=10, deadline=None)
@given(st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.integers(1, 60))
def test_the_budget_is_spent_whatever_alpha_and_length(budget: float, alpha: float, length: int) -> None:
    optimizer, weight = _optimizer(budget=budget, total_steps=length, alpha=alpha)
    _run(optimizer, weight, length)
    assert abs(optimizer.num_samples - budget * length) < 1 + 1e-6
    assert optimizer.price == 1 + optimizer.num_samples / length
    assert optimizer.expected_price == 1 + budget


def test_the_budget_is_spent_on_resume() -> None:
    straight, weight = _optimizer(budget=0.3, total_steps=40)
    expected = _run(straight, weight, 40)
    first, weight = _optimizer(budget=0.3, total_steps=40)
    before = _run(first, weight, 17)
    second, weight = _optimizer(budget=0.3, total_steps=40)
    second.load_state_dict(first.state_dict())
    assert before + _run(second, weight, 23) == expected
    assert sum(expected) == 12


def test_a_longer_run_is_told_once_and_goes_on() -> None:
    optimizer, weight = _optimizer(budget=0.5, total_steps=4)
    _run(optimizer, weight, 4)
    with pytest.warns(RuntimeWarning, match="longer than total_steps=4") as told:
        _run(optimizer, weight, 6)
    assert len(told) == 1
    assert optimizer.num_samples == 5


@pytest.mark.parametrize(("target", "share"), [("1.6x", 0.25), ("1x", 1.0), ("1.9", 2 / 1.9 - 1), ("1.25X", 0.6)])
def test_a_target_is_a_budget(target: str, share: float) -> None:
    assert check_budget(None, target, 10, "paper") == pytest.approx(share)
    optimizer, _ = _optimizer(target=target, total_steps=10)
    assert isinstance(optimizer.when, vsam.Even)
    assert optimizer.expected_price == pytest.approx(1 + share)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.2}, "total_steps is needed"),
        ({"total_steps": 9}, "only used with a budget"),
        ({"budget": 0.2, "target": "1.6x", "total_steps": 9}, "give one"),
        ({"budget": 0.2, "total_steps": 9, "variant": "released"}, "its own law"),
        ({"budget": 0, "total_steps": 9}, "budget must be in"),
        ({"target": "2x", "total_steps": 9}, "target must be a multiple"),
        ({"target": "fast", "total_steps": 9}, "target must be a multiple"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _optimizer(**options)


def test_without_a_budget_it_is_the_papers_law_and_no_price_is_promised() -> None:
    optimizer, _ = _optimizer()
    assert isinstance(optimizer.when, vsam.Variation)
    assert optimizer.price is optimizer.expected_price is None


@pytest.mark.parametrize(("settings", "gamma"), [({}, 0.7), ({"budget": 0.2}, 0.9), ({"target": "1.6x"}, 0.875)])
def test_the_decay_of_a_reused_psf_suits_the_gaps_unless_it_is_named(settings, gamma):
    length = {"total_steps": 100} if settings else {}
    base = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    assert vsam.VSAM(base, **settings, **length).between.gamma == pytest.approx(gamma)
    assert vsam.VSAM(base, gamma=0.7, **settings, **length).between.gamma == 0.7
