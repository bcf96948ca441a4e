"""Variation follows equations 8 to 15 of the paper, which are written out again here."""

import math
import random
from collections.abc import Callable, Iterable
from itertools import pairwise
from statistics import fmean, pvariance

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vsam import Variation

N, M = 10, 5


def sample(psf_norm: float, grad_norm: float = 1.0) -> list[Tensor]:
    return [torch.tensor(norm, dtype=torch.float64) for norm in (psf_norm, grad_norm)]


def run(when: Variation, steps: Iterable[int], norms: Callable[[int], tuple[float, float]]) -> list[bool]:
    """Lead `when` through steps as the optimizer does. `norms` returns ‖PSF‖ and ‖g‖ of a step."""
    decisions = []
    for step in steps:
        decisions.append(when.before(step))
        if decisions[-1]:
            when.observe(*sample(*norms(step)))
        when.advance(step, decisions[-1], was_skipped=False)
    return decisions


def noise(seed: int) -> Callable[[int], tuple[float, float]]:
    """Norms that any step always has, so that different rules may sample different steps."""

    def norms(step: int) -> tuple[float, float]:
        draws = random.Random(1000 * seed + step)
        return draws.lognormvariate(0, 0.6), draws.lognormvariate(1, 0.3)

    return norms


def changes(samples: list[tuple[float, float]], window: int, slices: int) -> tuple[float, float]:
    """Equations 8 to 13 for the last N samples, each of which has its own v over the N that end with it."""
    n = [psf for psf, _ in samples]
    r = [psf / g for psf, g in samples][-window:]  # (11)
    v = []
    for end in range(len(n) - window + 1, len(n) + 1):
        ordered, size = sorted(n[end - window : end]), window // slices
        v.append(fmean(pvariance(ordered[j : j + size]) for j in range(0, window, size)))  # (8)
    c_var = [(new - old) / old for old, new in pairwise(v)]  # (9)
    c_norm = [(new - old) / old for old, new in pairwise(r)]  # (12)
    return sum(c_var) / (window - 1), sum(c_norm) / (window - 1)  # (10), (13)


@pytest.mark.parametrize(
    ("window", "slices", "alpha", "start"), [(10, 5, 0.3, 19), (12, 3, 0.1, 30), (8, 1, 0.5, 0), (50, 5, 0.2, 120)]
)
def test_s_follows_the_equations(window: int, slices: int, alpha: float, start: int) -> None:
    when = Variation(alpha, window, slices, start, initial_samples=4, seed=1)
    norms, samples, s, num_updates = noise(1), [], 4.0, 0
    for step in range(1, 15 * window + 1):
        assert when.s == pytest.approx(s, rel=1e-12)
        if run(when, [step], norms)[0]:
            samples.append(norms(step))
        if step > start and step % window == 0 and len(samples) >= 2 * window - 1:
            c_var, c_norm = changes(samples, window, slices)
            s = min(max(s * (1 + alpha * c_var + alpha * c_norm), 1), 0.8 * window)  # (14)
            num_updates += 1
            assert when.details() == pytest.approx({"s": s, "change_var": c_var, "change_norm": c_norm}, rel=1e-9)
            assert when.rate == pytest.approx(s / window)  # (15)
    assert num_updates > 4
    assert s != 4


def test_each_draw_has_the_probability_p() -> None:
    when = Variation(alpha=0, window=50, start=0, initial_samples=15, seed=2)
    decisions = run(when, range(1, 20001), noise(0))
    assert sum(decisions) / 20000 == pytest.approx(0.3, abs=0.01)
    per_window = [sum(decisions[i : i + 50]) for i in range(0, 20000, 50)]
    assert pvariance(per_window) == pytest.approx(50 * 0.3 * 0.7, rel=0.2), "draws must be independent"


def test_the_draws_come_from_a_private_generator() -> None:
    def decide(seed: int) -> list[bool]:
        random.seed(0)
        torch.manual_seed(0)
        return run(Variation(window=N, start=0, initial_samples=5, seed=seed), range(1, 200), noise(0))

    state = random.getstate()
    first = decide(7)
    assert decide(7) == first
    assert decide(8) != first
    random.seed(0)
    fresh = random.getstate()
    decide(7)
    assert random.getstate() == fresh
    random.setstate(state)


@pytest.mark.parametrize("start", [0, 1, 9, 10, 11, 35])
def test_the_start_phase_samples_at_every_step_and_tells_so(start: int) -> None:
    when = Variation(window=N, start=start, max_rate=1.0)
    for step in range(1, start + 1):
        assert when.rate == 1
        assert run(when, [step], noise(0)) == [True]
    assert when.rate == 1 / N
    decisions = run(when, range(start + 1, start + 301), noise(0))
    assert not all(decisions)


def test_s_is_left_alone_in_the_start_phase_and_at_its_last_step() -> None:
    when = Variation(alpha=0.5, window=N, start=40, seed=1)
    run(when, range(1, 41), noise(3))
    assert when.details() == {"s": 1, "change_var": None, "change_norm": None}, "i must exceed the start"
    run(when, range(41, 50), noise(3))
    assert when.change_var is None
    run(when, [50], noise(3))
    assert when.change_var is not None


def test_windows_are_counted_from_the_first_step_and_not_from_the_end_of_the_start() -> None:
    when, updates = Variation(alpha=0.5, window=N, start=27, initial_samples=3), []
    for step in range(1, 101):
        before = when.change_norm
        run(when, [step], noise(5))
        if when.change_norm != before:
            updates.append(step)
    assert set(updates) <= set(range(30, 101, 10))
    assert updates[0] == 30


def test_no_window_holds_more_samples_than_its_share() -> None:
    when = Variation(alpha=0, window=N, start=0, initial_samples=8, max_rate=0.8, seed=1)
    decisions = run(when, range(1, 3001), noise(0))
    per_window = [sum(decisions[i : i + N]) for i in range(0, 3000, N)]
    assert max(per_window) == 8
    halted = [w for w in range(0, 3000, N) if sum(decisions[w : w + 8]) == 8]
    assert halted, "some window must fill its share early"
    assert not any(decisions[w + 8] or decisions[w + 9] for w in halted)


@pytest.mark.parametrize(("window", "max_rate", "most"), [(10, 0.7, 7), (12, 0.8, 9), (50, 0.58, 29), (10, 1.0, 10)])
def test_the_halt_is_exact_where_the_product_is_rounded(window: int, max_rate: float, most: int) -> None:
    when = Variation(alpha=0, window=window, slices=2, start=0, initial_samples=max_rate * window, max_rate=max_rate)
    decisions = run(when, range(1, 400 * window + 1), noise(0))
    assert max(sum(decisions[i : i + window]) for i in range(0, len(decisions), window)) == most


def test_samples_of_the_start_phase_count_in_the_window_that_it_ends_in() -> None:
    when = Variation(alpha=0, window=N, start=8, initial_samples=8, max_rate=0.8)
    assert run(when, range(1, 11), noise(0)) == [True] * 8 + [False] * 2
    assert any(run(when, range(11, 21), noise(0)))


@pytest.mark.parametrize(("trend", "bound"), [(1.5, 8.0), (0.5, 2.0)])
def test_s_stays_between_its_bounds(trend: float, bound: float) -> None:
    when = Variation(alpha=1.0, window=N, start=30, initial_samples=4, min_samples=2)
    run(when, range(1, 61), lambda step: (trend ** min(step, 40) * (1 + 0.1 * (step % 3)), 1.0))
    assert when.s == bound


@given(
    st.lists(st.tuples(st.floats(0, 2.0**100, width=32), st.floats(0, 2.0**100, width=32)), min_size=60, max_size=60)
)
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_whatever_the_norms_s_is_a_number_within_its_bounds(norms: list[tuple[float, float]]) -> None:
    when = Variation(alpha=1.0, window=N, start=30)
    run(when, range(1, 61), lambda step: norms[step - 1])
    assert 1 <= when.s <= 8


@pytest.mark.parametrize(("num_samples", "is_updated"), [(2 * N - 2, False), (2 * N - 1, True)])
def test_s_waits_for_n_ratios_and_n_variances(num_samples: int, is_updated: bool) -> None:
    when = Variation(alpha=0.5, window=N, start=0)
    for i in range(num_samples):
        when.observe(*sample(*noise(2)(i)))
    when.advance(3 * N, was_sampled=False, was_skipped=False)
    assert (when.change_var is not None) == is_updated
    assert (when.s != 1) == is_updated


def test_a_change_from_zero_counts_as_none() -> None:
    when = Variation(alpha=0.5, window=N, start=0, initial_samples=3)
    for _ in range(2 * N - 2):
        when.observe(*sample(0.0))
    when.observe(*sample(1.0))
    when.advance(3 * N, was_sampled=False, was_skipped=False)
    assert when.details() == {"s": 3, "change_var": 0, "change_norm": 0}


def test_a_share_that_lets_sampling_die_out_is_refused() -> None:
    """If the window allows less than one sample, sampling would stop at once."""
    with pytest.raises(ValueError, match="max_rate"):
        Variation(window=N, initial_samples=0.5, min_samples=0.5, max_rate=0.05)


def test_equal_norms_do_not_move_s() -> None:
    when = Variation(alpha=1.0, window=N, start=30, initial_samples=3)
    run(when, range(1, 100), lambda step: (2.0, 4.0))
    assert when.details() == {"s": 3, "change_var": 0, "change_norm": 0}


def test_a_gradient_of_zero_does_not_break_the_law() -> None:
    when = Variation(alpha=1.0, window=N, start=30, initial_samples=3)
    run(when, range(1, 61), lambda step: (1.0 + step % 4, 0.0 if step % 7 == 0 else 2.0))
    assert 1 <= when.s <= 8
    assert when.change_norm is not None
    assert math.isfinite(when.change_norm)


def test_a_sample_that_is_not_finite_does_not_enter_the_law() -> None:
    clean, dirty = Variation(alpha=0.5, window=N, start=0), Variation(alpha=0.5, window=N, start=0)
    for i in range(2 * N - 1):
        clean.observe(*sample(*noise(2)(i)))
        dirty.observe(*sample(*noise(2)(i)))
    dirty.observe(*sample(math.nan, math.inf))
    for when in (clean, dirty):
        when.advance(3 * N, was_sampled=False, was_skipped=False)
    assert dirty.details() == clean.details()
    assert clean.change_var is not None


@pytest.mark.parametrize("norms", [(1e200, 1.0), (math.inf, 1.0), (1.0, 1e-320), (1.0, math.inf)])
def test_a_norm_or_ratio_beyond_the_range_of_floats_does_not_enter_the_law(norms: tuple[float, float]) -> None:
    clean, dirty = Variation(alpha=0.5, window=N, start=0), Variation(alpha=0.5, window=N, start=0)
    for i in range(2 * N):
        clean.observe(*sample(*noise(2)(i)))
        dirty.observe(*sample(*noise(2)(i)))
        dirty.observe(*sample(*norms))
    assert dirty.state_dict() == clean.state_dict()


def test_changes_whose_sum_is_beyond_the_range_of_floats_have_a_mean() -> None:
    when = Variation(alpha=0.5, window=N, start=0)
    for i in range(2 * N):
        when.observe(*sample(1e153 if i % 2 else 1e-155))
    when.advance(3 * N, was_sampled=False, was_skipped=False)
    assert when.change_norm == pytest.approx(5 / 9 * 1e308)
    assert when.s == 8


@pytest.mark.parametrize("bad_share", [0.0, 0.2])
def test_saving_does_not_change_the_run(bad_share: float) -> None:
    """Also after a long start phase, of which some samples were not finite and the device was never asked."""
    draws = random.Random(3)
    is_bad = [draws.random() < bad_share for _ in range(101)]

    def lead(saves: bool) -> dict[str, float | None]:
        when = Variation(alpha=0.5, window=N, start=95)
        for step in range(1, 96):
            when.observe(*sample(math.nan if is_bad[step] else noise(2)(step)[0]))
            when.advance(step, was_sampled=True, was_skipped=False)
            if saves and step % 7 == 0:
                when.load_state_dict(when.state_dict())
        for step in range(96, 101):
            when.advance(step, was_sampled=False, was_skipped=False)
        assert when.change_var is not None
        return when.details()

    assert lead(saves=True) == lead(saves=False)


def test_a_loaded_state_continues_with_the_same_decisions() -> None:
    whole, norms = Variation(alpha=0.5, window=N, start=25, initial_samples=3, seed=5), noise(4)
    expected = run(whole, range(1, 201), norms)
    first = Variation(alpha=0.5, window=N, start=25, initial_samples=3, seed=5)
    decisions = run(first, range(1, 78), norms)
    second = Variation(alpha=0.5, window=N, start=25, initial_samples=3, seed=999)
    second.load_state_dict(first.state_dict())
    assert decisions + run(second, range(78, 201), norms) == expected
    assert second.state_dict() == whole.state_dict()
