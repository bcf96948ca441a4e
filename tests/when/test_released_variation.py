"""ReleasedVariation keeps the quota, the clamps and the alignment of the authors' program."""

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsam import ReleasedVariation, Variation

N = 10


def run(when: Variation, steps: Iterable[int], seed: int = 0, trend: float = 1.0) -> list[tuple[bool, float]]:
    """Lead `when` through steps as the optimizer does, and return each step's decision with its s."""
    told = []
    for step in steps:
        told.append((when.before(step), when.s))
        if told[-1][0]:
            draws = random.Random(1000 * seed + step)
            norm = torch.tensor(draws.lognormvariate(0, 0.4) * trend**step, dtype=torch.float64)
            when.observe(norm, torch.ones_like(norm))
        when.advance(step, told[-1][0], was_skipped=False)
    return told


@given(
    seed=st.integers(0, 1000),
    start=st.integers(0, 43),
    alpha=st.floats(0, 2),
    initial_samples=st.floats(1, 8),
    slices=st.sampled_from([1, 2, 5]),
)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_a_full_window_holds_exactly_its_quota(
    seed: int, start: int, alpha: float, initial_samples: float, slices: int
) -> None:
    when = ReleasedVariation(alpha, N, slices, start, initial_samples, seed=seed)
    told = run(when, range(1, start + 20 * N), seed)
    # The first window lacks its first step, which counts as sampled; the others begin at a multiple of N.
    assert sum(d for d, _ in told[start : start + N - 1]) == int(initial_samples) - 1
    for begin in range(start + N - 1, len(told), N):
        window = told[begin : begin + N]
        assert len({s for _, s in window}) == 1, "s changes at the first step of a window only"
        assert sum(decision for decision, _ in window) == int(window[0][1])


@pytest.mark.parametrize("start", [0, 7, 120])
def test_the_first_steps_after_the_start_hold_no_sample(start: int) -> None:
    told = run(ReleasedVariation(window=50, start=start, seed=4), range(1, start + 100))
    decisions = [decision for decision, _ in told]
    assert decisions[:start] == [True] * start
    assert not any(decisions[start : start + 49])
    assert sum(decisions[start + 49 : start + 99]) == 1


def test_a_quota_that_was_not_drawn_is_taken_at_the_end_of_the_window() -> None:
    class Never(random.Random):
        def random(self) -> float:
            return 0.0

    when = ReleasedVariation(alpha=0, window=N, start=0, initial_samples=3)
    when.generator = Never()
    told = run(when, range(1, 1 + N - 1 + N))
    assert [step for step, (decision, _) in enumerate(told, start=1) if decision] == [8, 9, 17, 18, 19]


def test_a_draw_is_taken_only_while_the_quota_lasts() -> None:
    class Counting(random.Random):
        num_draws = 0

        def random(self) -> float:
            self.num_draws += 1
            return 1.0  # always a sample

    when = ReleasedVariation(alpha=0, window=N, start=5, initial_samples=3)
    when.generator = Counting()
    told = run(when, range(6, 26))
    assert [step for step, (decision, _) in enumerate(told, start=6) if decision] == [6, 7, 15, 16, 17, 25]
    assert when.generator.num_draws == 2 + 3 + 1


def test_each_change_rate_is_clamped_by_itself() -> None:
    released = ReleasedVariation(alpha=0.1, window=N, start=40, initial_samples=4)
    paper = Variation(alpha=0.1, window=N, start=40, initial_samples=4)
    for when in (released, paper):
        run(when, range(1, 51), trend=10.0)
    assert paper.change_var is not None
    assert paper.change_norm is not None
    assert paper.change_var > 10
    assert paper.change_norm > 1
    assert (released.change_var, released.change_norm) == (1, 1)
    assert released.s == pytest.approx(4 * 1.2)


def test_change_rates_within_the_clamp_are_the_papers() -> None:
    released, paper = ReleasedVariation(alpha=0.1, window=N, start=39), Variation(alpha=0.1, window=N, start=39, seed=1)
    run(released, range(1, 49))
    run(paper, range(1, 40))  # the same samples: none lies behind the start in `released`
    paper.advance(40, was_sampled=False, was_skipped=False)
    assert released.details() == paper.details()
    assert released.change_var is not None
    assert 0 < abs(released.change_var) < 1


@pytest.mark.parametrize(("trend", "bound"), [(10.0, 9), (0.1, 2)])
def test_s_is_clamped_to_whole_upper_bound_and_min_samples(trend: float, bound: int) -> None:
    when = ReleasedVariation(alpha=2.0, window=12, slices=2, start=40, initial_samples=4, min_samples=2, max_rate=0.8)
    run(when, range(1, 60), trend=trend)
    assert when.s == bound  # int(0.8 · 12) = 9


def test_windows_are_counted_from_the_end_of_the_start() -> None:
    told = run(ReleasedVariation(alpha=0.5, window=N, start=27, initial_samples=3), range(1, 120))
    moved = [step for step, ((_, old), (_, new)) in enumerate(pairwise(told), start=2) if old != new]
    assert moved
    assert all((step - 27) % N == 0 for step in moved), "s is updated before the decision of a counter's multiple of N"
    assert moved[0] == 37


def test_s_waits_for_enough_samples() -> None:
    when = ReleasedVariation(alpha=0.5, window=N, start=2 * N - 3, initial_samples=1)
    run(when, range(1, 2 * N - 3 + N))  # 2N − 3 of the start phase and none behind it
    assert when.change_var is None
    run(when, range(3 * N - 3, 3 * N - 3 + 3 * N))  # one sample a window
    assert when.change_var is not None


def test_a_start_phase_of_enough_samples_moves_s_at_the_first_update() -> None:
    when = ReleasedVariation(alpha=0.5, window=N, start=2 * N - 1, initial_samples=1)
    run(when, range(1, 2 * N - 1 + N))
    assert when.change_var is not None


def test_a_min_samples_that_lets_sampling_die_out_is_refused() -> None:
    """Below 1 the quota int(s) would be none."""
    with pytest.raises(ValueError, match=r"^min_samples must .* got 0\.5"):
        ReleasedVariation(initial_samples=0.5, min_samples=0.5)


def test_a_loaded_state_continues_with_the_same_decisions() -> None:
    def make(seed: int) -> ReleasedVariation:
        return ReleasedVariation(alpha=0.5, window=N, start=25, initial_samples=3, seed=seed)

    expected = run(make(5), range(1, 201), 4)
    for cut in (10, 25, 26, 34, 35, 78):
        first, second = make(5), make(999)
        told = run(first, range(1, cut + 1), 4)
        second.load_state_dict(first.state_dict())
        assert told + run(second, range(cut + 1, 201), 4) == expected
