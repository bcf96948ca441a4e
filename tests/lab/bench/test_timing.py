"""The interleaved run, with as few rounds as there can be; nothing is said about times."""

import gc

import pytest
import torch

from lab.bench.made import TINY, entry
from vsam.lab.bench.bases import BASES
from vsam.lab.bench.contestants import OURS
from vsam.lab.bench.timing import FEWEST_ROUNDS, Stopwatch, single_thread, time_rounds


@pytest.mark.parametrize("base", BASES)
def test_every_method_around_every_base(base: str) -> None:
    found = time_rounds(TINY, BASES[base], OURS, rounds=2, seconds=60)
    assert len(found) == len(OURS)
    for taken in found:
        assert len(taken) >= 2
        assert all(min(turn.step, turn.reference_pass, turn.reference_base) > 0 for turn in taken)


def test_kinds_of_steps() -> None:
    entries = [entry("sgd"), entry("sam"), entry("vsam", True)]
    plain, *sampled = time_rounds(TINY, BASES["sgd"], entries, rounds=3, seconds=60)
    assert not any(turn.sampled for turn in plain)
    assert all(turn.sampled for taken in sampled for turn in taken)
    (mixed,) = time_rounds(TINY, BASES["sgd"], [entry("sam-5")], rounds=10, seconds=60)
    assert {turn.sampled for turn in mixed} == {True, False}


def test_time_is_up_but_a_few_rounds_there_are() -> None:
    seen: list[int] = []
    time_rounds(TINY, BASES["sgd"], [entry("sgd")], rounds=100, seconds=0, advance=seen.append)
    assert seen == list(range(FEWEST_ROUNDS + 1))


def test_threads_and_collector_are_put_back() -> None:
    num_threads = torch.get_num_threads()
    with single_thread():
        assert not gc.isenabled()
        assert torch.get_num_threads() == 1
    assert gc.isenabled()
    assert torch.get_num_threads() == num_threads


def test_passes_and_the_base_are_timed_within_the_step() -> None:
    """Of a step of the base alone nothing is left but clearing the gradients."""
    contestant = entry("sam").make(TINY.build(), BASES["sgd"])
    watch = Stopwatch(contestant)
    whole, outside = watch.time(contestant.step)
    assert watch.num_passes == 2
    assert outside is not None
    assert 0 < outside < whole
    assert outside == pytest.approx(whole - watch.inside)
    assert watch.time(lambda: None)[1] is None  # nothing to tell apart
