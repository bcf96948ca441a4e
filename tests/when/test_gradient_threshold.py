"""GradientThreshold decides as AE-SAM's formulas say."""

import math
import random

import pytest
import torch
from torch import nn

import vsam
from vsam import GradientThreshold


def decisions(when: GradientThreshold, norms: list[float]) -> list[bool]:
    result = []
    for step, norm in enumerate(norms, start=1):
        result.append(when.after(step, norm))
        when.advance(step, result[-1], was_skipped=False)
    return result


def expected(norms: list[float], total: int, delta: float, low: float, high: float) -> list[bool]:
    result, mean, variance = [], 0.0, 0.0
    for t, norm in enumerate(norms):
        x = norm**2
        mean = x if t == 0 else delta * mean + (1 - delta) * x
        variance = delta * variance + (1 - delta) * (x - mean) ** 2
        share = min(t, total) / total
        c = share * low + (1 - share) * high
        result.append(t == 0 or x >= mean + c * math.sqrt(variance))
    return result


@pytest.mark.parametrize(
    ("delta", "low", "high"), [(0.9, -1.0, 1.0), (0.5, -2.0, 0.5), (0.0, 0.0, 0.0), (0.99, 1.0, -1.0)]
)
def test_samples_where_the_squared_norm_reaches_the_threshold(delta: float, low: float, high: float) -> None:
    draws = random.Random(4)
    norms = [draws.lognormvariate(0, 0.5) for _ in range(600)]
    wanted = expected(norms, 400, delta, low, high)
    assert decisions(GradientThreshold(400, delta, low, high), norms) == wanted
    assert any(wanted)


def test_about_half_of_the_steps_are_sampled_with_the_published_settings() -> None:
    draws = random.Random(0)
    norms = [math.sqrt(draws.gauss(10, 1)) for _ in range(4000)]
    assert sum(decisions(GradientThreshold(4000), norms)) / 4000 == pytest.approx(0.5, abs=0.05)


def test_the_first_step_samples_whatever_the_threshold() -> None:
    assert GradientThreshold(10, high=1e9).after(1, 0.0)
    assert GradientThreshold(10, high=1e9).after(1, 5.0)


def test_the_threshold_starts_at_high_and_stays_at_low_beyond_the_end() -> None:
    # From μ = 4, σ² = 0 and δ = ½, x = 9 gives μ = 6.5, σ = √3.125: above μ + σ, below μ + 2 σ.
    def reaches(step: int, c_low: float, c_high: float) -> bool:
        when = GradientThreshold(10, delta=0.5, low=c_low, high=c_high)
        when.load_state_dict({"mean": 4.0, "variance": 0.0})
        return when.after(step, 3.0)

    assert not reaches(1, c_low=1.0, c_high=2.0)  # t = 0: c = high
    assert reaches(1, c_low=2.0, c_high=1.0)
    assert reaches(11, c_low=1.0, c_high=2.0)  # t = 10 = T: c = low
    assert not reaches(11, c_low=2.0, c_high=1.0)
    # Beyond T it would cross where c went on: at t = 20, 2·low − high.
    assert not reaches(21, c_low=1.8, c_high=3.0)
    assert reaches(21, c_low=1.2, c_high=0.0)


def test_equality_samples() -> None:
    when = GradientThreshold(10, low=0.0, high=0.0)
    assert decisions(when, [2.0] * 5) == [True] * 5


def test_asking_changes_nothing_until_the_step_has_ended() -> None:
    when = GradientThreshold(10)
    decisions(when, [1.0, 2.0])
    before = when.state_dict()
    when.after(3, 100.0)
    assert when.state_dict() == before
    when.advance(3, True, was_skipped=True)
    assert when.state_dict() == before, "a skipped step must not enter the rule"
    when.advance(4, True, was_skipped=False)
    assert when.state_dict() == before, "what a skipped step gave must be forgotten"


@pytest.mark.parametrize("norm", [math.inf, math.nan, 1e200])
def test_a_norm_that_is_not_finite_is_neither_sampled_nor_remembered(norm: float) -> None:
    when = GradientThreshold(10)
    decisions(when, [1.0, 2.0])
    before = when.state_dict()
    assert not when.after(3, norm)
    when.advance(3, False, was_skipped=True)
    assert when.state_dict() == before


def test_it_is_given_the_norm_over_all_parameters() -> None:
    a, b = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.tensor([4.0]))
    optimizer = vsam.AESAM(torch.optim.SGD([{"params": [a]}, {"params": [b], "perturb": False}], lr=0.1), total_steps=5)

    def closure() -> torch.Tensor:
        loss = (a.square() + b.square()).sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    assert optimizer.when.state_dict() == {"mean": 25.0, "variance": 0.0}
    assert optimizer.last is not None
    assert optimizer.last.rate == 1
    for _ in range(20):
        optimizer.step(closure)
    assert optimizer.last.rate == optimizer.num_samples / 21 < 1
