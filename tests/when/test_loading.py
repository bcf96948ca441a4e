"""A saved rule with impossible numbers raises an error that names them and changes nothing. Valid ones load."""

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsam import GradientThreshold, ReleasedVariation, Variation, When

N = 10
RULES = [Variation, ReleasedVariation]


def make(rule: type[Variation], seed: int = 0) -> Variation:
    return rule(alpha=0.5, window=N, start=25, initial_samples=3, min_samples=2, seed=seed)


def lead(when: Variation, norms: Callable[[int], tuple[float, float]], num_steps: int) -> None:
    for step in range(1, num_steps + 1):
        was_sampled = when.before(step)
        if was_sampled:
            when.observe(*torch.tensor(norms(step), dtype=torch.float64))
        when.advance(step, was_sampled, was_skipped=False)


def trained(rule: type[Variation], seed: int = 0) -> Variation:
    """A rule in the middle of a window, with all that it keeps."""
    draws, when = random.Random(seed), make(rule, seed)
    lead(when, lambda step: (draws.lognormvariate(0, 0.5), draws.lognormvariate(0, 0.5)), 75)
    return when


def assert_refused(when: When, state: Any, words: str) -> None:
    before, kept = copy.deepcopy(when.state_dict()), copy.deepcopy(state)
    with pytest.raises(ValueError, match=words) as caught:
        when.load_state_dict(state)
    assert str(caught.value).endswith(".")
    assert when.state_dict() == before
    assert repr(state) == repr(kept)


NO_NUMBERS = ["3", True, [3.0], math.nan, math.inf, -math.inf]
NO_LISTS = [
    None,
    1.0,
    "1",
    {0: 1.0},
    [1.0] * (N + 1),
    [math.nan] * N,
    [math.inf] * N,
    [-1.0] * N,
    ["1"] * N,
    [None] * N,
]
WRONG: dict[str, list[Any]] = {
    "s": [*NO_NUMBERS, None, 0, -1, 1.99, 8.01, 1e300],
    "num_used": [*NO_NUMBERS, None, 2.0, -1, N + 1],
    "is_starting": [None, 0, 1, "True", math.nan],
    "change_var": NO_NUMBERS,
    "change_norm": NO_NUMBERS,
    "psf_norms": [*NO_LISTS, [1.0] * (N - 1)],
    "ratios": [*NO_LISTS, [1.0] * (N - 1)],
    "variances": NO_LISTS,
}
GENERATOR: list[Any] = [3, [*range(624), 624], None]
BROKEN_GENERATORS: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "too short": [3, GENERATOR[1]],
    "another version": [1, GENERATOR[1], None],
    "too few words": [3, GENERATOR[1][1:], None],
    "no word": [3, [math.nan, *GENERATOR[1][1:]], None],
    "a negative word": [3, [-1, *GENERATOR[1][1:]], None],
    "too large a word": [3, [2**32, *GENERATOR[1][1:]], None],
    "a place beyond the end": [3, [*GENERATOR[1][:-1], 625], None],
    "zeros": [3, [0] * 624 + [624], None],
    "a number in reserve": [3, GENERATOR[1], "x"],
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_rule_with_a_number_that_cannot_be_is_refused_by_name(rule: type[Variation], name: str, value: Any) -> None:
    words = r"(psf_norms|ratios)" if name == "psf_norms" else name
    assert_refused(trained(rule), {**trained(rule, 1).state_dict(), name: value}, rf"^{words}(\[\d+\])? must ")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", BROKEN_GENERATORS)
def test_a_broken_generator_is_refused(rule: type[Variation], name: str) -> None:
    state = {**trained(rule, 1).state_dict(), "generator": BROKEN_GENERATORS[name]}
    assert_refused(trained(rule), state, "^generator must be the state of a random.Random, got ")


@pytest.mark.parametrize("rule", RULES)
def test_variances_of_too_few_norms_are_refused(rule: type[Variation]) -> None:
    state = {**trained(rule, 1).state_dict(), "psf_norms": [1.0] * 3, "ratios": [1.0] * 3}
    assert_refused(trained(rule), state, "^variances must be empty until there are 10 psf_norms, got 3")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_lacks_an_entry_is_refused(rule: type[Variation]) -> None:
    whole = trained(rule, 1).state_dict()
    for name in whole:
        assert_refused(
            trained(rule), {n: v for n, v in whole.items() if n != name}, f"^state must have an entry '{name}'"
        )
    assert_refused(trained(rule), None, "^state must be a dict, got NoneType")


@pytest.mark.parametrize("rule", RULES)
def test_what_waits_for_the_device_is_still_there_after_a_refusal(rule: type[Variation]) -> None:
    refused, untouched = make(rule), make(rule)
    for when in (refused, untouched):
        lead(when, lambda step: (1.0 + step % 3, 2.0), 24)
    with pytest.raises(ValueError, match=r"^s must be finite, got nan"):
        refused.load_state_dict({**trained(rule).state_dict(), "s": math.nan})
    assert refused.state_dict() == untouched.state_dict()
    assert len(refused.state_dict()["psf_norms"]) == N


# Any norms of float64: the largest overflow in ratios, variances and changes.
NORMS = (
    st.floats(0, allow_nan=False, allow_infinity=False) | st.floats(0, 10) | st.sampled_from([0.0, 5e-324, 1.0, 1e308])
)


@given(
    rule=st.sampled_from(RULES),
    norms=st.lists(st.tuples(NORMS, NORMS), min_size=1, max_size=40),
    num_steps=st.integers(0, 90),
    alpha=st.sampled_from([0.0, 0.1, 3.0, 1e6]),
    window=st.sampled_from([4, 10]),
    start=st.integers(0, 50),
    max_rate=st.sampled_from([0.5, 0.8, 1.0]),
)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_what_a_run_saves_is_taken_and_continues_the_same(
    rule: type[Variation],
    norms: list[tuple[float, float]],
    num_steps: int,
    alpha: float,
    window: int,
    start: int,
    max_rate: float,
) -> None:
    when, other = (rule(alpha, window, 2, start, 2, 1, max_rate, seed=seed) for seed in (0, 1))
    lead(when, lambda step: norms[step % len(norms)], num_steps)
    state = when.state_dict()
    other.load_state_dict(copy.deepcopy(state))
    assert other.state_dict() == state
    assert [other.before(start + i) for i in range(1, 50)] == [when.before(start + i) for i in range(1, 50)]


@pytest.mark.parametrize("mean", ["1", True, [1.0], math.nan, math.inf, -0.1])
def test_a_mean_that_cannot_be_is_refused(mean: Any) -> None:
    when = GradientThreshold(10)
    when.load_state_dict({"mean": 4.0, "variance": 2.0})
    assert_refused(when, {"mean": mean, "variance": 1.0}, "^mean must ")


@pytest.mark.parametrize("variance", [None, "1", True, [1.0], math.nan, math.inf, -0.1])
def test_a_variance_that_cannot_be_is_refused(variance: Any) -> None:
    when = GradientThreshold(10)
    when.load_state_dict({"mean": 4.0, "variance": 2.0})
    assert_refused(when, {"mean": 1.0, "variance": variance}, "^variance must ")
    assert_refused(when, {"mean": 1.0}, "^state must have an entry 'variance', got mean")


@given(norms=st.lists(st.floats(0) | st.just(math.nan), max_size=20), delta=st.floats(0, 0.99))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_whatever_threshold_a_run_saves_is_taken(norms: list[float], delta: float) -> None:
    when, other = GradientThreshold(10, delta), GradientThreshold(10, delta)
    for step, norm in enumerate(norms, start=1):
        when.advance(step, when.after(step, norm), was_skipped=False)
    other.load_state_dict(when.state_dict())
    assert other.state_dict() == when.state_dict()
