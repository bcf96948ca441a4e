"""The processes that train one model together: which they are, whether they agree, and what they exchange."""

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vsam import shards

__all__ = ["Ranks"]

_CHECK_EVERY = 1000
"""Steps between checks that all ranks agree; the first step is checked."""


class Ranks:
    """The ranks that train a model, found by its DDP wrapper or its sharded parameters; none otherwise.

    Args:
        model: as passed to the optimizer.
        parameters: the optimizer's.
        sync: "global" or "rank".
    """

    def __init__(self, model: nn.Module | None, parameters: list[Any], sync: str) -> None:
        self.model = model
        self.units = shards.units(model)
        modules = model.modules() if model is not None else ()
        self._ddp = next((module for module in modules if isinstance(module, DistributedDataParallel)), None)
        sharded = [parameter for parameter in parameters if type(parameter) in shards.CLASSES]
        self.groups = _groups(self._ddp, sharded)
        self.are_apart = sync == "rank" and self._may_be_apart(bool(sharded))
        self.communicate = bool(sharded) or self.are_apart
        """Whether steps communicate: then nothing may depend on listeners, which may be on one rank only."""
        self._num_steps = 0

    def _may_be_apart(self, is_sharded: bool) -> bool:
        """Whether each rank can perturb along its own gradient, and there is more than one."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return False
        if is_sharded:
            raise ValueError(
                "sync='rank' needs all weights on every rank, but these are sharded: use sync='global', or "
                "DistributedDataParallel."
            )
        if self._ddp is None:
            raise ValueError(
                "sync='rank' needs to know what averages the gradients: pass the DistributedDataParallel module as "
                "model=."
            )
        return bool(self.groups)

    def check(self, optimizer: Any) -> None:
        """At the start of a step: raise on all ranks if they would drift apart."""
        joining = getattr(self._ddp, "_join_config", None)
        if joining is not None and joining.enable and not joining.throw_on_early_termination:
            raise RuntimeError(
                "join() is not supported: a rank that has run out of batches takes no more steps, so its counters, PSF "
                "and decisions would fall behind. Give all ranks the same number of batches with DistributedSampler(…, "
                "drop_last=True), or stop together with model.join(throw_on_early_termination=True)."
            )
        if self._num_steps % _CHECK_EVERY == 0:
            self._compare(_fingerprint(optimizer))
        self._num_steps += 1

    def _compare(self, own: dict[str, str]) -> None:
        for group in self.groups:
            found: list[Any] = [None] * torch.distributed.get_world_size(group)
            torch.distributed.all_gather_object(found, own, group=group)
            for name in own:
                other = next((rank for rank, one in enumerate(found) if one.get(name) != found[0][name]), None)
                if other is not None:
                    first, second = (torch.distributed.get_global_rank(group, rank) for rank in (0, other))
                    raise RuntimeError(
                        f"The ranks do not agree on {name}: rank {first} has {found[0][name]}, rank {second} has "
                        f"{found[other].get(name)}. Construct the same optimizer on all ranks, with the same settings "
                        "and seed, and load the same checkpoint on all of them."
                    )

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The context of a first pass whose gradients stay on their rank; a failure in it is reported to all ranks."""
        assert self._ddp is not None
        with self.report_failure(), self._ddp.no_sync():
            yield

    @contextmanager
    def report_failure(self) -> Iterator[None]:
        """The context of what comes before `exchange`: if it fails on one rank, all ranks learn of it.

        If it communicates itself, as SyncBatchNorm does, the others wait there until the group's timeout.
        """
        try:
            yield
        except Exception:
            with suppress(RuntimeError):
                self._gather(math.nan, _FAILED)
            raise

    def exchange(self, norm: Tensor | None, gradients: list[bool], needs_same: bool) -> list[float]:
        """The norms of all ranks' gradients, none if no rank has one; raises on all ranks if one has failed.

        Args:
            norm: of this rank's gradient, None if there is none.
            gradients: for each parameter, whether it has one.
            needs_same: whether the ranks must have gradients of the same parameters.
        """
        kind = zlib.crc32(bytes(gradients)) if norm is not None else _NOTHING
        found = self._gather(math.nan if norm is None else float(norm), kind)
        kinds = [int(kind) for _, kind in found]
        if _FAILED in kinds:
            raise RuntimeError(f"Rank {kinds.index(_FAILED)} failed in its first pass: see its own error.")
        if all(kind == _NOTHING for kind in kinds):
            return []
        if _NOTHING in kinds or (needs_same and len(set(kinds)) > 1):
            raise RuntimeError(
                "The ranks have gradients of different parameters in the first pass, which cannot be averaged: use "
                "sync='global', where DDP handles that."
            )
        return [norm for norm, _ in found]

    def average_(self, buffers: list[Tensor]) -> None:
        """`buffer ← mean over the ranks`."""
        (group,) = self.groups
        size = torch.distributed.get_world_size(group)
        for buffer in buffers:
            torch.distributed.all_reduce(buffer.div_(size), group=group)

    def _gather(self, norm: float, kind: int) -> list[list[float]]:
        (group,) = self.groups
        assert self._ddp is not None
        device = next(self._ddp.parameters()).device
        own = torch.tensor([norm, kind], dtype=torch.float64, device=device)
        found = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size(group))]
        torch.distributed.all_gather(found, own, group=group)
        numbers: list[list[float]] = torch.stack(found).tolist()
        return numbers


_FAILED, _NOTHING = -1, -2


def _groups(ddp: DistributedDataParallel | None, sharded: list[Any]) -> list[Any]:
    """The process groups whose ranks train together, without groups of one process."""
    found = [] if ddp is None else [ddp.process_group]
    for mesh in dict.fromkeys(parameter.device_mesh for parameter in sharded):
        found += [mesh.get_group(i) for i in range(mesh.ndim)]
    return [group for group in dict.fromkeys(found) if torch.distributed.get_world_size(group) > 1]


def _fingerprint(optimizer: Any) -> dict[str, str]:
    """What must be equal on all ranks, as text."""
    parameters = [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
    plain = (bool, int, float, str, tuple, type(None))
    groups = [{name: v for name, v in group.items() if isinstance(v, plain)} for group in optimizer.param_groups]
    history = optimizer._history.state_dict()
    states = {slot: repr(getattr(optimizer, slot).state_dict()) for slot in ("when", "where", "between")}
    return {
        "the method": type(optimizer).__name__,
        "the base": type(optimizer.base).__name__,
        **{slot: repr(getattr(optimizer, slot)) for slot in ("when", "where", "between")},
        **{name: repr(getattr(optimizer, name)) for name in ("sync", "max_grad_norm", "guard", *optimizer._settings)},
        "the number of parameters": str(len(parameters)),
        "the parameters' shapes": _digest(parameters),
        **{f"group {i}": repr(group) for i, group in enumerate(groups)},
        "the steps so far": repr(history),
        **{f"the state of {slot}": _digest(state) for slot, state in states.items()},
    }


def _digest(thing: object) -> str:
    return f"checksum {zlib.crc32(repr(thing).encode()):08x}"
