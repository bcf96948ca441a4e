"""Who is timed: the base alone, every method of ours, and pytorch_optimizer's."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer

import vsam
from vsam.lab.bench.bases import Base
from vsam.lab.bench.workloads import Problem

__all__ = ["OURS", "Contestant", "Ours", "OursWithLosses", "Plain"]


class Contestant(ABC):
    """A training loop around one optimizer and its own copy of the problem."""

    optimizer: Any
    """The method's own optimizer."""

    @abstractmethod
    def step(self) -> None:
        """Take one whole training step, as the method's documentation writes it."""

    @property
    def num_sampled(self) -> int:
        """How many second gradients were taken so far, without asking the device."""
        return 0


class Plain(Contestant):
    """The base optimizer alone: the reference, which can be taken in two halves."""

    def __init__(self, problem: Problem, base: Base) -> None:
        self.problem = problem
        self.optimizer: Optimizer = base.make(problem.model.parameters())

    def take_pass(self) -> None:
        """Clear the gradients, run forward and backward."""
        self.problem.next_batch()
        self.optimizer.zero_grad()
        self.problem.forward_backward()

    def step(self) -> None:
        """One pass and the base's step."""
        self.take_pass()
        self.optimizer.step()


class Ours(Contestant):
    """A method of this library with a closure."""

    def __init__(self, make: "Make", problem: Problem, base: Base) -> None:
        self.problem = problem
        self.optimizer = make(base.make(problem.model.parameters()), problem.model)

    def step(self) -> None:
        """One call with a closure, which clears no gradients because the optimizer does."""
        self.problem.next_batch()
        self.optimizer.step(self.problem.forward_backward)

    @property
    def num_sampled(self) -> int:
        """How many second gradients were taken so far."""
        return int(self.optimizer.num_samples)


class OursWithLosses(Ours):
    """ESAM, which asks for the loss of each example."""

    def step(self) -> None:
        """One call with a function of per-example losses."""
        self.problem.next_batch()
        self.optimizer.step(self.problem.losses)


Make = Callable[[Optimizer, Any], vsam.SharpnessAware]


@dataclass(frozen=True)
class Entry:
    """A method that can be timed.

    Args:
        name: on the command line.
        label: in tables.
        make: builds its contestant from a problem and a base.
        passes: gradient passes of a plain and of a sampled step; None where they differ from SGD's in kind.
        keeps: only steps of this kind are reported (True: sampled); None reports both.
        is_peer: it is pytorch_optimizer's.
        refuses_fused: it cannot be run around a fused base.
        base_of: the base that it really uses.
    """

    name: str
    label: str
    make: Callable[[Problem, Base], Contestant]
    passes: tuple[int, int] | None = (1, 2)
    keeps: bool | None = None
    is_peer: bool = False
    refuses_fused: bool = False
    base_of: Callable[[Base], Base] = lambda base: base


_EVER = 10**9


def _ours(name: str, label: str, make: Make, **options: Any) -> Entry:
    return Entry(name, label, lambda problem, base: Ours(make, problem, base), **options)


# vSAM twice, always sampling and hardly ever, so that each round has a step of either kind.
OURS: tuple[Entry, ...] = (
    Entry("sgd", "base alone", Plain),
    _ours("sam", "SAM", lambda base, model: vsam.SAM(base, model=model)),
    _ours("sam-5", "SAM-5", lambda base, model: vsam.SAM(base, model=model, every=5)),
    _ours("asam", "ASAM", lambda base, model: vsam.ASAM(base, model=model)),
    _ours("looksam-5", "LookSAM-5", lambda base, model: vsam.LookSAM(base, model=model, every=5)),
    _ours("ae-sam", "AE-SAM", lambda base, model: vsam.AESAM(base, model=model, total_steps=_EVER, high=0.0)),
    Entry(
        "esam",
        "ESAM",
        lambda problem, base: OursWithLosses(lambda b, model: vsam.ESAM(b, model=model), problem, base),
        passes=None,
    ),
    _ours("vsam", "vSAM", lambda base, model: vsam.VSAM(base, model=model, start=_EVER), keeps=True),
    _ours("vsam", "vSAM", lambda base, model: vsam.VSAM(base, model=model, start=2), keeps=False),
    _ours("vsam-a", "vSAM-A", lambda base, model: vsam.VSAM(base, model=model, gamma=0.0, start=_EVER), keeps=True),
    _ours("vsam-a", "vSAM-A", lambda base, model: vsam.VSAM(base, model=model, gamma=0.0, start=2), keeps=False),
)
