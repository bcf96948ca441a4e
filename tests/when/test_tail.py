"""Tail samples the last share of a run, and goes on beyond it. Late SAM is SAM with it."""

from typing import Any

import pytest
import torch

import vsam
from vsam import GradientThreshold, Tail


@pytest.mark.parametrize(("share", "total", "first"), [(0.1, 100, 91), (0.25, 10, 9), (0.3, 10, 8), (1.0, 5, 1)])
def test_samples_the_last_steps(share: float, total: int, first: int) -> None:
    when = Tail(share, total)
    assert [step for step in range(1, total + 1) if when.before(step)] == list(range(first, total + 1))
    assert when.num_tail == total + 1 - first == round(share * total)
    assert when.before(total + 1)
    assert when.rate == when.expected_rate == share


def test_says_what_it_does() -> None:
    assert "last 25 of 100 steps" in Tail(0.25, 100).describe()


@pytest.mark.parametrize("share", [0, -0.1, 1.1, "0.2", float("nan")])
def test_a_share_that_cannot_be_is_refused(share: object) -> None:
    with pytest.raises(ValueError, match="share must"):
        Tail(share, 100)  # type: ignore[arg-type]


def test_a_tail_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no step would be sampled. Give at least 0.01"):
        Tail(0.004, 100)
    with pytest.raises(ValueError, match="total_steps must be at least 1"):
        Tail(0.5, 0)


def test_the_length_may_be_set_later_and_once() -> None:
    when = Tail(0.5)
    assert "last 0.5 of the run" in when.describe()
    with pytest.raises(ValueError, match=r"Tail needs the length of the run: pass total_steps="):
        when.before(1)
    when.set_total_steps(4)
    when.set_total_steps(400)
    assert [when.before(step) for step in (1, 2, 3, 4)] == [False, False, True, True]
    when = Tail(0.1)
    with pytest.raises(ValueError, match=r"no step would be sampled"):
        when.set_total_steps(4)
    when.set_total_steps(20)
    assert when.num_tail == 2


def make(**settings: Any) -> tuple[torch.Tensor, vsam.SAM]:
    weight = torch.nn.Parameter(torch.ones(3))
    return weight, vsam.SAM(torch.optim.SGD([weight], lr=0.1), **settings)


def test_late_sam_samples_the_last_part_and_an_unknown_length_is_an_error_that_changes_nothing() -> None:
    weight, optimizer = make(last=0.4)

    def closure() -> torch.Tensor:
        loss = weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with pytest.raises(ValueError, match="total_steps=num_epochs"):
        optimizer.step(closure)
    assert torch.equal(weight, torch.ones(3))
    optimizer.set_total_steps(5)
    for _ in range(5):
        optimizer.step(closure)
    assert optimizer.num_samples == 2
    assert optimizer.expected_cost == optimizer.cost == 1.4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"last": 0.2, "every": 5, "total_steps": 9}, "both choose the sampled steps"),
        ({"total_steps": 9}, "for last="),
        ({"last": 0.0, "total_steps": 9}, "share must"),
        ({"last": 0.01, "total_steps": 9}, "no step would be sampled"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(**settings)


def test_a_start_phase_as_long_as_the_run_warns() -> None:
    when = vsam.Variation(start=100)
    with pytest.warns(RuntimeWarning, match="start=100 covers all 60 steps"):
        when.set_total_steps(60)
    when.set_total_steps(101)
    vsam.Always().set_total_steps(1)


def test_a_threshold_without_length_asks_for_it() -> None:
    with pytest.raises(ValueError, match="GradientThreshold needs the length"):
        GradientThreshold().after(1, 2.0)
