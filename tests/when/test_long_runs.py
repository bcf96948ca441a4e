"""A rule takes the same memory and the same work per step after a hundred thousand steps as at the beginning."""

import sys
from collections import Counter
from collections.abc import Callable, Sized
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vsam import ReleasedVariation, Variation

N, NUM_STEPS = 50, 100_000
RULES = [Variation, ReleasedVariation]
SAMPLES = [
    (torch.tensor(1.0 + i % 7 if i % 11 else torch.inf, dtype=torch.float64), torch.tensor(2.0 + i % 3))
    for i in range(77)
]


def lead(when: Variation, first: int, last: int) -> None:
    for step in range(first, last + 1):
        was_sampled = when.before(step)
        if was_sampled:
            when.observe(*SAMPLES[step % len(SAMPLES)])
        when.advance(step, was_sampled, was_skipped=False)


def num_kept(when: Variation) -> int:
    """Count the items of all containers of the rule."""
    return sum(len(value) for value in vars(when).values() if isinstance(value, Sized))


class Operators(TorchDispatchMode):
    """Counts what torch is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def calls(work: Callable[[], None]) -> Counter[str]:
    """Count the calls of each function, Python's and C's."""
    counts: Counter[str] = Counter()

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            counts[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            counts[argument.__qualname__] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize("rule", RULES)
def test_a_long_run_keeps_three_windows_of_numbers(rule: type[Variation]) -> None:
    when = rule(alpha=0.05, window=N, start=2 * N)
    shift = 0 if rule is Variation else -1  # where a window ends
    lead(when, 1, 10 * N + shift)
    for end in range(11 * N + shift, NUM_STEPS, N):
        lead(when, end - N + 1, end)
        assert num_kept(when) <= 3 * N
    assert num_kept(when) == 3 * N
    lead(when, NUM_STEPS // N * N + shift + 1, NUM_STEPS + N - 2)
    assert num_kept(when) <= 3 * N + when.num_used, "only the samples of the window in force wait"


@pytest.mark.parametrize("rule", RULES)
def test_a_long_start_phase_keeps_a_bounded_number_of_samples(rule: type[Variation]) -> None:
    when = rule(window=N, start=NUM_STEPS)
    lead(when, 1, NUM_STEPS)
    assert num_kept(when) <= 4 * N


@pytest.mark.parametrize("rule", RULES)
def test_a_window_costs_the_same_after_a_long_run(rule: type[Variation]) -> None:
    # With a rate of 1 every step draws and samples, so that all windows are alike.
    when = rule(alpha=0.1, window=N, start=0, initial_samples=N, min_samples=N, max_rate=1.0)
    period = N * len(SAMPLES)
    lead(when, 1, period)
    early = calls(lambda: lead(when, period + 1, period + 7 * N))
    late_start = NUM_STEPS // period * period
    lead(when, period + 7 * N + 1, late_start)
    late = calls(lambda: lead(when, late_start + 1, late_start + 7 * N))
    assert late == early
    assert early["sorted"] > 6 * N, "the profile must see the rule's work"
    assert early.total() < 60 * 7 * N, "calls per sampled step"


@pytest.mark.parametrize("rule", RULES)
def test_the_device_is_asked_once_a_window_however_many_samples_it_holds(rule: type[Variation]) -> None:
    when = rule(alpha=0.1, window=N, start=0, initial_samples=N, min_samples=N, max_rate=1.0)
    lead(when, 1, 4 * N)
    with Operators() as operators:
        lead(when, 4 * N + 1, 5 * N)
    few = rule(alpha=0, window=N, start=0, initial_samples=1)
    lead(few, 1, 4 * N)
    with Operators() as other:
        lead(few, 4 * N + 1, 8 * N)
    assert operators.count <= 10
    assert other.count <= 4 * operators.count
