"""A budget is spent exactly with any other settings, and after a resume. A target is a budget in other units."""

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import vsam


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
@given(st.floats(0.01, 1.0), st.integers(1, 60))
def test_the_budget_is_spent_whatever_the_length(budget: float, length: int) -> None:
    optimizer, weight = _optimizer(budget=budget)
    _run(optimizer, weight, length)
    assert abs(optimizer.num_samples - budget * length) < 1 + 1e-6
    assert optimizer.cost == 1 + optimizer.num_samples / length
    assert optimizer.expected_cost == 1 + budget


def test_the_budget_is_spent_on_resume() -> None:
    straight, weight = _optimizer(budget=0.3)
    expected = _run(straight, weight, 40)
    first, weight = _optimizer(budget=0.3)
    before = _run(first, weight, 17)
    second, weight = _optimizer(budget=0.3)
    second.load_state_dict(first.state_dict())
    assert before + _run(second, weight, 23) == expected
    assert sum(expected) == 12


@pytest.mark.parametrize(("target", "share"), [("1.6x", 0.25), ("1x", 1.0), ("1.9", 2 / 1.9 - 1), ("1.25X", 0.6)])
def test_a_target_is_a_budget(target: str, share: float) -> None:
    optimizer, _ = _optimizer(target=target)
    assert isinstance(optimizer.when, vsam.Even)
    assert optimizer.expected_cost == pytest.approx(1 + share)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.2, "target": "1.6x"}, "give one"),
        ({"budget": 0.2, "variant": "released"}, "leave out variant="),
        ({"budget": 0}, "budget must be in"),
        ({"target": "2x"}, "target must be a multiple"),
        ({"target": "fast"}, "target must be a multiple"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _optimizer(**options)


_OF_THE_RULE = {
    name: one.default
    for name, one in inspect.signature(vsam.VSAM).parameters.items()
    if name in {*inspect.signature(vsam.Variation).parameters, "variant"}
}


@pytest.mark.parametrize("budget", [{"budget": 0.2}, {"target": "1.6x"}])
@pytest.mark.parametrize("setting", _OF_THE_RULE)
def test_a_setting_of_the_rule_next_to_a_budget_is_an_error_even_with_its_default(
    setting: str, budget: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=rf"leave out {setting}=, or leave out {next(iter(budget))}="):
        _optimizer(**budget, **{setting: _OF_THE_RULE[setting]})
    with pytest.raises(ValueError, match=f"leave out {setting}="):
        vsam.create("vsam-budget", torch.optim.SGD([torch.ones(2)]), **budget, **{setting: _OF_THE_RULE[setting]})


def test_a_subclass_cannot_hide_a_setting_of_the_rule_from_a_budget() -> None:
    class Mine(vsam.VSAM):
        def __init__(self, base: torch.optim.Optimizer) -> None:
            super().__init__(base, budget=0.2, window=100)

    with pytest.raises(ValueError, match="window"):
        Mine(torch.optim.SGD([torch.ones(2)]))


def test_a_budget_may_come_with_what_it_uses_and_without_one_the_rule_has_all_settings() -> None:
    optimizer, _ = _optimizer(budget=0.2, rho=0.3, gamma=0.5, max_grad_norm=1.0, guard=False)
    assert (optimizer.where.rho, optimizer.between.gamma, optimizer.max_grad_norm) == (0.3, 0.5, 1.0)
    optimizer, _ = _optimizer(budget=None, target=None, **_OF_THE_RULE)
    assert isinstance(optimizer.when, vsam.Variation)


def test_without_a_budget_it_is_the_papers_law_and_no_price_is_promised() -> None:
    optimizer, _ = _optimizer()
    assert isinstance(optimizer.when, vsam.Variation)
    assert optimizer.cost is optimizer.expected_cost is None


@pytest.mark.parametrize(("settings", "gamma"), [({}, 0.7), ({"budget": 0.2}, 0.9), ({"target": "1.6x"}, 0.875)])
def test_the_decay_of_a_reused_psf_suits_the_gaps_unless_it_is_named(settings, gamma):
    base = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    assert vsam.VSAM(base, **settings).between.gamma == pytest.approx(gamma)
    assert vsam.VSAM(base, gamma=0.7, **settings).between.gamma == 0.7
