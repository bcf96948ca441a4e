"""The methods of pytorch_optimizer, each run as in its documentation."""

import importlib
import importlib.util
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch

from vsam.lab.bench.bases import LEARNING_RATE, Base
from vsam.lab.bench.contestants import Contestant, Entry
from vsam.lab.bench.workloads import Problem

__all__ = ["PEERS", "PEER_SAMS", "peers_version", "why_without_peers"]

PEER_SAMS = ("peer-sam", "peer-sam-foreach")
"""The peers that compute the same as our SAM."""

_OLDEST = (4, 1)


def peers_version() -> str | None:
    """The installed version of pytorch_optimizer, if any."""
    return metadata.version("pytorch_optimizer") if importlib.util.find_spec("pytorch_optimizer") else None


def why_without_peers() -> str | None:
    """Why pytorch_optimizer's methods cannot be run, None if they can."""
    version = peers_version()
    if version is None:
        return "pytorch_optimizer is not installed: its methods were left out."
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        return (
            f"pytorch_optimizer {version} is older than 4.1, the oldest supported version: its methods were left out."
        )
    return None


class _Peer(Contestant):
    """Takes two passes at every step, and counts its sharpness-aware steps."""

    _num_sampled = 0

    @property
    def num_sampled(self) -> int:
        """How many steps were sharpness-aware."""
        return self._num_sampled


class _FirstPassOutside(_Peer):
    """SAM, LookSAM, FriendlySAM: backward runs first, and the closure is the second pass.

    The examples also clear the gradients in the closure; left out, because `first_step(zero_grad=True)` already did.
    """

    def __init__(self, name: str, problem: Problem, base: Base, **options: Any) -> None:
        self.problem = problem
        kind = getattr(importlib.import_module("pytorch_optimizer"), name)
        self.optimizer = kind(problem.model.parameters(), base.kind, **base.options, **options)

    def step(self) -> None:
        """Clear the gradients, run one pass, then call step with the closure."""
        self._num_sampled += 1
        self.problem.next_batch()
        self.optimizer.zero_grad()
        self.problem.forward_backward()
        self.optimizer.step(self.problem.forward_backward)


class _LookSAM(_FirstPassOutside):
    """Runs the closure at every step, but uses its gradient only when it renews the direction."""

    _num_steps = 0

    def step(self) -> None:
        """The same loop; only steps that renew the direction count as sampled."""
        self._num_sampled -= self._num_steps % self.optimizer.k != 0
        self._num_steps += 1
        super().step()


class _WSAM(_Peer):
    """Runs both passes itself, given the closure."""

    def __init__(self, problem: Problem, base: Base) -> None:
        self.problem = problem
        kind = importlib.import_module("pytorch_optimizer").WSAM
        self.optimizer = kind(problem.model, problem.model.parameters(), base.kind, **base.options)

    def step(self) -> None:
        """Clear the gradients, then call step with the closure."""
        self._num_sampled += 1
        self.problem.next_batch()
        self.optimizer.zero_grad()
        self.optimizer.step(self.problem.forward_backward)


class _GSAM(_Peer):
    """Wraps a constructed base and receives the batch."""

    def __init__(self, problem: Problem, base: Base) -> None:
        library = importlib.import_module("pytorch_optimizer")
        self.problem = problem
        inner = base.make(problem.model.parameters())
        constant = torch.optim.lr_scheduler.ConstantLR(inner, factor=1.0)
        radius = library.ProportionScheduler(constant, max_lr=LEARNING_RATE, max_value=0.05, min_value=0.05)
        self.optimizer = library.GSAM(problem.model.parameters(), inner, problem.model, radius)

    def step(self) -> None:
        """Pass the batch, then step."""
        self._num_sampled += 1
        self.problem.next_batch()
        criterion = torch.nn.functional.cross_entropy
        self.optimizer.set_closure(criterion, self.problem.inputs, self.problem.targets)
        self.optimizer.step()


def _peer(name: str, label: str, make: Callable[[Problem, Base], Contestant], **options: Any) -> Entry:
    return Entry(name, f"{label} (peer)", make, passes=(2, 2), is_peer=True, **options)


def _first_pass_outside(name: str) -> Callable[[Problem, Base], Contestant]:
    return lambda problem, base: _FirstPassOutside(name, problem, base)


PEERS: tuple[Entry, ...] = (
    _peer("peer-sam", "SAM", _first_pass_outside("SAM")),
    _peer(
        "peer-sam-foreach",
        "SAM foreach",
        _first_pass_outside("SAM"),
        refuses_fused=True,  # it passes foreach=True to the base, which torch does not allow with fused
        base_of=Base.with_foreach,
    ),
    _peer("peer-looksam", "LookSAM-5", lambda problem, base: _LookSAM("LookSAM", problem, base, k=5)),
    _peer("peer-gsam", "GSAM", _GSAM),
    _peer("peer-friendly", "FriendlySAM", _first_pass_outside("FriendlySAM")),
    _peer("peer-wsam", "WSAM", _WSAM),
)
