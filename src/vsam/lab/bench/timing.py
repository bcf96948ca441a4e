"""Interleaved timing: every contestant takes a turn in each round, next to a step of the base alone."""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import torch

from vsam.lab.bench.bases import Base
from vsam.lab.bench.contestants import Contestant, Entry, Plain
from vsam.lab.bench.workloads import Workload

__all__ = ["Turn", "single_thread", "time_rounds"]

WARM_UP = 6
"""Steps before the first round: enough to create every buffer, and to run what happens every fifth step."""

FEWEST_ROUNDS = 5


@dataclass(frozen=True)
class Turn:
    """One contestant's turn in one round, in seconds of this thread's CPU time.

    Args:
        sampled: the kind of its steps.
        step: its whole step.
        reference_pass: zero_grad, forward and backward of the base alone, right before or after.
        reference_base: the base's own step, likewise.
    """

    sampled: bool
    step: float
    reference_pass: float
    reference_base: float

    @property
    def reference(self) -> float:
        """A step of the base alone."""
        return self.reference_pass + self.reference_base

    @property
    def to_base(self) -> float:
        """The step as a multiple of the reference."""
        return self.step / self.reference

    def added(self, passes: int) -> float:
        """The step minus its passes and the base's own step, as a multiple of the reference.

        As a multiple, a turn in which the machine was slow counts no more than others.
        """
        return (self.step - passes * self.reference_pass - self.reference_base) / self.reference


@dataclass
class _Seat:
    """A contestant and its reference, the base alone."""

    contestant: Contestant
    reference: Plain
    turns: list[Turn] = field(default_factory=list)


@contextmanager
def single_thread() -> Iterator[None]:
    """One thread for torch, and no garbage collection in the middle of a step."""
    num_threads, was_enabled = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # existing objects need not be scanned between rounds
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        torch.set_num_threads(num_threads)
        if was_enabled:
            gc.enable()


def time_rounds(
    workload: Workload,
    base: Base,
    entries: Sequence[Entry],
    rounds: int,
    seconds: float,
    advance: Callable[[int], None] = lambda completed: None,
    seed: int = 0,
) -> list[list[Turn]]:
    """The turns of each entry.

    Args:
        workload: what is trained; each contestant gets a copy with the same weights and the same batch.
        base: the base optimizer.
        entries: what to time.
        rounds: maximum number.
        seconds: no round starts later than this, except the first five.
        advance: called with the number of completed rounds.
        seed: for the order of turns, which is reshuffled in each round.
    """
    advance(0)
    shuffle = random.Random(seed)
    seats = _seats(workload, base, entries)
    with single_thread():
        for seat in seats:
            for _ in range(WARM_UP):
                seat.contestant.step()
                seat.reference.step()
        start = time.monotonic()
        for number in range(rounds):
            if number >= FEWEST_ROUNDS and time.monotonic() - start > seconds:
                break
            for seat in shuffle.sample(seats, len(seats)):
                seat.turns += _take_turn(seat, workload.burst, reference_first=shuffle.random() < 0.5)
            gc.collect()
            advance(number + 1)
    return [seat.turns for seat in seats]


def _seats(workload: Workload, base: Base, entries: Sequence[Entry]) -> list[_Seat]:
    own = [entry.base_of(base) for entry in entries]
    references = {base.name: Plain(workload.build(), base) for base in own}
    contestants = [entry.make(workload.build(), base) for entry, base in zip(entries, own, strict=True)]
    return [_Seat(one, references[base.name]) for one, base in zip(contestants, own, strict=True)]


def _take_turn(seat: _Seat, burst: int, reference_first: bool) -> list[Turn]:
    """A turn for each kind of step that occurred."""
    if reference_first:
        passes, bases = _time_reference(seat.reference, burst)
    times = _time_steps(seat.contestant, burst)
    if not reference_first:
        passes, bases = _time_reference(seat.reference, burst)
    kinds = dict.fromkeys(sampled for sampled, _ in times)
    return [Turn(kind, median(t for own, t in times if own is kind), passes, bases) for kind in kinds]


def _time_steps(contestant: Contestant, burst: int) -> list[tuple[bool, float]]:
    """Kind and time of each step of a burst; if there are several, the first only warms the caches."""
    times = []
    for _ in range(burst):
        before = contestant.num_sampled
        start = time.thread_time()
        contestant.step()
        elapsed = time.thread_time() - start
        times.append((contestant.num_sampled > before, elapsed))
    return times[1:] or times


def _time_reference(reference: Plain, burst: int) -> tuple[float, float]:
    """Time of the pass and of the base's step, likewise."""
    passes, bases = [], []
    for _ in range(burst):
        start = time.thread_time()
        reference.take_pass()
        middle = time.thread_time()
        reference.optimizer.step()
        bases.append(time.thread_time() - middle)
        passes.append(middle - start)
    return median(passes[1:] or passes), median(bases[1:] or bases)
