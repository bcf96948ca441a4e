"""Interleaved timing: every contestant takes a turn in each round, next to a step of the base alone."""

import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from vsam.lab.bench.bases import Base
from vsam.lab.bench.contestants import Contestant, Entry, Plain
from vsam.lab.bench.workloads import Workload

__all__ = ["Stopwatch", "Turn", "single_thread", "time_rounds"]

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
        outside: the part of its step outside the passes and the base's own step; None if they cannot be told apart.
        reference_clearing: the part of `reference_pass` outside forward and backward.
    """

    sampled: bool
    step: float
    reference_pass: float
    reference_base: float
    outside: float | None = None
    reference_clearing: float = 0.0

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

        As a multiple, a turn in which the machine was slow counts no more than others. Passes timed within the step
        itself make much less noise than those of the reference.
        """
        if self.outside is not None:
            return (self.outside - passes * self.reference_clearing) / self.reference
        return (self.step - passes * self.reference_pass - self.reference_base) / self.reference


class Stopwatch:
    """Times what runs inside a contestant's step: its passes and the base optimizer's own step."""

    def __init__(self, contestant: Any) -> None:
        self.contestant, self.inside, self.num_passes = contestant, 0.0, 0
        optimizer, problem = contestant.optimizer, contestant.problem
        base = vars(optimizer).get("base") or vars(optimizer).get("base_optimizer") or optimizer
        problem.forward_backward = self._timed(problem.forward_backward, 1)
        base.step = self._timed(base.step, 0)

    def _timed(self, function: Callable[..., Any], num_passes: int) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.thread_time()
            result = function(*arguments)
            self.inside += time.thread_time() - start
            self.num_passes += num_passes
            return result

        return timed

    def time(self, function: Callable[[], Any]) -> tuple[float, float | None]:
        """The time of a call, and that part of it which is not inside; None if no pass was seen."""
        self.inside, self.num_passes = 0.0, 0
        start = time.thread_time()
        function()
        elapsed = time.thread_time() - start
        return elapsed, elapsed - self.inside if self.num_passes else None


class _Seat:
    """A contestant and its reference, the base alone."""

    def __init__(self, contestant: Contestant, reference: Stopwatch) -> None:
        self.contestant, self.watch, self.reference = contestant, Stopwatch(contestant), reference
        self.turns: list[Turn] = []


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
                seat.reference.contestant.step()
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
    references = {base.name: Stopwatch(Plain(workload.build(), base)) for base in own}
    contestants = [entry.make(workload.build(), base) for entry, base in zip(entries, own, strict=True)]
    return [_Seat(one, references[base.name]) for one, base in zip(contestants, own, strict=True)]


def _take_turn(seat: _Seat, burst: int, reference_first: bool) -> list[Turn]:
    """A turn for each kind of step that occurred."""
    if reference_first:
        passes, bases, clearing = _time_reference(seat.reference, burst)
    times = _time_steps(seat, burst)
    if not reference_first:
        passes, bases, clearing = _time_reference(seat.reference, burst)
    turns = []
    for kind in dict.fromkeys(sampled for sampled, _, _ in times):
        steps = [step for own, step, _ in times if own is kind]
        outside = [rest for own, _, rest in times if own is kind and rest is not None]
        turns.append(Turn(kind, median(steps), passes, bases, median(outside) if outside else None, clearing))
    return turns


def _time_steps(seat: _Seat, burst: int) -> list[tuple[bool, float, float | None]]:
    """Kind and times of each step of a burst; if there are several, the first only warms the caches."""
    times = []
    for _ in range(burst):
        before = seat.contestant.num_sampled
        step, outside = seat.watch.time(seat.contestant.step)
        times.append((seat.contestant.num_sampled > before, step, outside))
    return times[1:] or times


def _time_reference(reference: Stopwatch, burst: int) -> tuple[float, float, float]:
    """Time of the pass, of the base's step, and of what surrounds forward and backward, likewise."""
    times = []
    for _ in range(burst):
        whole, clearing = reference.time(reference.contestant.take_pass)
        base, _ = reference.time(reference.contestant.optimizer.step)
        times.append((whole, base, clearing))
    passes, bases, clearings = zip(*(times[1:] or times), strict=True)
    return median(passes), median(bases), median(clearings)
