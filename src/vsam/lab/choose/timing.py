"""How long a network's passes and steps take here: medians of interleaved turns on one model."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import vsam
from vsam.lab.errors import RunError
from vsam.lab.subject.subject import Subject, explained, quiet_output

__all__ = ["FEWEST_ROUNDS", "Times", "time_passes"]

FEWEST_ROUNDS = 5
_LONGEST = 10**9


@dataclass(frozen=True)
class Times:
    """Medians over rounds; in each round, every kind of step has one turn.

    Args:
        base: seconds per step of the base optimizer alone: one pass, and its own step.
        forward: a forward pass without gradients, in multiples of `base`, like all that follow.
        sampled, plain: SAM's steps with and without the second gradient.
        sampled_with_memory, plain_with_memory: vSAM's, which keeps and reuses the PSF.
        rounds: their number.
    """

    base: float
    forward: float
    sampled: float
    plain: float
    sampled_with_memory: float
    plain_with_memory: float
    rounds: int

    def mean(self, rate: float, *, keeps_memory: bool) -> float:
        """The mean step if a fraction `rate` of the steps is sampled, with or without keeping the PSF."""
        plain = self.plain_with_memory if keeps_memory else self.plain
        sampled = self.sampled_with_memory if keeps_memory else self.sampled
        return plain + rate * (sampled - plain)


def time_passes(subject: Subject, seconds: float, advance: Callable[[float], object] = lambda spent: None) -> Times:
    """Time steps of the base optimizer, SAM and vSAM in alternation for about `seconds`, at a learning rate of 0.

    All wrap the same base optimizer, so this needs no more memory than training with vSAM. Ratios are taken within a
    round, where the machine is equally busy for all.
    """
    turns = _turns(subject)
    order, spent = random.Random(0), 0.0
    rounds: list[dict[str, tuple[float, ...]]] = []
    with _at_rest(subject), explained(subject.file, "training failed"), quiet_output():
        for turn in turns.values():  # the first step of each creates its buffers and warms the caches
            turn(subject.next_batch())
        start = time.monotonic()
        while len(rounds) < FEWEST_ROUNDS or spent < seconds:
            batch = subject.next_batch()
            rounds.append({name: turns[name](batch) for name in order.sample(list(turns), len(turns))})
            spent = time.monotonic() - start
            advance(min(spent, seconds))

    def ratio(name: str, i: int) -> float:
        return median(one[name][i] / one["base"][0] for one in rounds)

    return Times(
        base=median(one["base"][0] for one in rounds),
        forward=ratio("forward", 0),
        sampled=ratio("sam", 0),
        plain=ratio("sam", 1),
        sampled_with_memory=ratio("vsam", 0),
        plain_with_memory=ratio("vsam", 1),
        rounds=len(rounds),
    )


def _turns(subject: Subject) -> dict[str, Callable[[Any], tuple[float, ...]]]:
    """What is timed: a turn of the base is one step, a turn of a method is a sampled step and a plain step."""
    base, model = subject.base, subject.model
    methods = {
        "sam": vsam.SAM(base, model=model, rho=subject.rho, every=2),
        "vsam": vsam.VSAM(base, model=model, rho=subject.rho, budget=0.5, total_steps=_LONGEST),
    }

    def step_base(batch: Any) -> tuple[float, ...]:
        closure = subject.closure(batch)

        def step() -> None:
            base.zero_grad()
            closure()
            base.step()

        return (_timed(subject, step),)

    def look_forward(batch: Any) -> tuple[float, ...]:
        with torch.no_grad():
            return (_timed(subject, lambda: subject.loss(batch)),)

    def step_method(optimizer: vsam.SharpnessAware) -> Callable[[Any], tuple[float, ...]]:
        def step(batch: Any) -> tuple[float, ...]:
            closure = subject.closure(batch)
            before = optimizer.num_samples
            found = tuple(_timed(subject, lambda: optimizer.step(closure)) for _ in range(2))
            if optimizer.num_skipped:
                raise RunError(
                    "Steps cannot be timed: a gradient was not finite, so steps were skipped. Run vsam doctor."
                )
            assert optimizer.num_samples == before + 1
            return found

        return step

    turns = {name: step_method(optimizer) for name, optimizer in methods.items()}
    return {"base": step_base, "forward": look_forward, **turns}


def _timed(subject: Subject, work: Callable[[], object]) -> float:
    """Seconds that the work takes, including its work on the device; clears gradients first."""
    subject.clear()
    _wait(subject.device)
    start = time.perf_counter()
    work()
    _wait(subject.device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


@contextmanager
def _at_rest(subject: Subject) -> Iterator[None]:
    """Set the learning rate to 0, so that thousands of steps on a few batches leave the weights unchanged."""
    groups = [group for group in subject.base.param_groups if isinstance(group.get("lr"), float | int)]
    rates = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = 0.0
    try:
        yield
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        subject.clear()
