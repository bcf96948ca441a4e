"""Even spends its budget exactly, without long gaps, whatever the length of the run."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vsam import Even, Every

budgets = st.floats(0.001, 1.0)
lengths = st.integers(1, 3000)


def _samples(budget: float, length: int) -> list[int]:
    when = Even(budget)
    return [step for step in range(1, length + 1) if when.before(step)]


@given(budgets, lengths)
def test_spends_the_budget_to_within_one_sample(budget: float, length: int) -> None:
    assert abs(len(_samples(budget, length)) - budget * length) < 1 + 1e-6


@given(budgets, lengths)
def test_no_gap_is_longer_than_stated(budget: float, length: int) -> None:
    samples, longest = _samples(budget, length), Even(budget).longest_gap
    assert longest < 1 / budget + 1.01  # which rounds up
    gaps = [after - before for before, after in zip([1, *samples], [*samples, length], strict=True)]
    assert samples[0] == 1
    assert max(gaps) <= longest


@given(budgets, budgets, lengths)
def test_more_budget_never_means_fewer_samples(one: float, other: float, length: int) -> None:
    low, high = sorted((one, other))
    assert len(_samples(low, length)) <= len(_samples(high, length))


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 10, 30])
def test_one_over_k_is_every_kth(k: int) -> None:
    even, every = Even(1 / k), Every(k)
    wanted = [(even.before(step), every.before(step)) for step in range(1, 501)]
    assert all(one == other for one, other in wanted)


def test_a_long_run_does_not_drift() -> None:
    assert sum(Even(0.1).before(step) for step in range(1, 78_201)) == 7820


@pytest.mark.parametrize("budget", [0, 1.5, -0.1, None])
def test_settings_that_cannot_be_are_refused(budget: object) -> None:
    with pytest.raises(ValueError, match="budget must"):
        Even(budget)  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [1e-7, 1e-300])
def test_the_smallest_budgets_sample_once(budget: float) -> None:
    assert _samples(budget, 100) == [1]
    assert Even(budget).longest_gap >= 1 / budget


@pytest.mark.parametrize("budget", [6e-7, 1.5e-6, 3e-9])
def test_a_budget_below_a_millionth_is_spent_too(budget: float) -> None:
    assert Even(budget).longest_gap == math.ceil(1 / Fraction(budget))
