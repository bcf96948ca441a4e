"""What is timed: the base alone, each of our methods, and pytorch_optimizer's."""

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
    """A training loop with one optimizer and its own copy of the problem."""

    optimizer: Any
    """The method's own optimizer."""

    @abstractmethod
    def step(self) -> None:
        """Take one training step, as in the method's documentation."""

    @property
    def num_sampled(self) -> int:
        """How many second gradients were taken so far, without a device sync."""
        return 0


class Plain(Contestant):
    """The base optimizer alone: the reference, which can be run in two halves."""

    def __init__(self, problem: Problem, base: Base) -> None:
        self.problem = problem
        self.optimizer: Optimizer = base.make(problem.model.parameters())

    def take_pass(self) -> None:
        """Clear the gradients, then run forward and backward."""
        self.problem.next_batch()
        self.optimizer.zero_grad()
        self.problem.forward_backward()

    def step(self) -> None:
        """One pass and the base optimizer's step."""
        self.take_pass()
        self.optimizer.step()


class Ours(Contestant):
    """A method of this library with a closure."""

    def __init__(self, make: "Make", problem: Problem, base: Base) -> None:
        self.problem = problem
        self.optimizer = make(base.make(problem.model.parameters()), problem.model)

    def step(self) -> None:
        """One call with a closure; the optimizer clears the gradients."""
        self.problem.next_batch()
        self.optimizer.step(self.problem.forward_backward)

    @property
    def num_sampled(self) -> int:
        """How many second gradients were taken so far."""
        return int(self.optimizer.num_samples)


class OursWithLosses(Ours):
    """ESAM, which needs per-sample losses."""

    def step(self) -> None:
        """One call with a function that returns per-sample losses."""
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
        passes: gradient passes of a plain and of a sampled step; None if they are not like SGD's.
        keeps: report only steps of this kind (True: sampled); None reports both.
        is_peer: whether it is from pytorch_optimizer.
        refuses_fused: whether it cannot wrap a fused base.
        base_of: the base that it actually uses.
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


# vSAM twice, always sampling and almost never, so that each round has a step of both kinds.
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
