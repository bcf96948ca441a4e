"""The processes that train one model together: compare their settings and exchange gradient norms."""

import math
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vsam._step import foreach
from vsam._step.gradients import PSF, Gradient, Gradients
from vsam.distributed import shards

_CHECK_EVERY = 1000
"""Steps between checks that all ranks agree. The first step is checked."""

_FAILED, _NOTHING = -1, -2


class Ranks:
    """The ranks that train a model, found by its DDP wrapper or its sharded parameters.

    Args:
        model: as passed to the optimizer.
        parameters: the optimizer's.
        sync: "global" or "rank".
    """

    def __init__(self, model: nn.Module | None, parameters: list[Any], sync: str) -> None:
        self.model = model
        modules = model.modules() if model is not None else ()
        self._ddp = next((module for module in modules if isinstance(module, DistributedDataParallel)), None)
        sharded = [parameter for parameter in parameters if type(parameter) in shards.CLASSES]
        self.groups = _groups(self._ddp, sharded)
        if sync == "rank" and torch.distributed.is_available() and torch.distributed.is_initialized():
            _check_per_rank(self._ddp, sharded)
        self.per_rank = sync == "rank" and bool(self.groups)
        """Whether each rank perturbs along its own gradient."""
        self.communicate = bool(sharded) or self.per_rank
        """Whether steps communicate. If so, nothing may depend on listeners, which may exist on one rank only."""
        self._num_steps = 0
        self._was_per_rank: bool | None = None

    def check(self, optimizer: Any) -> None:
        """Raise on all ranks if they cannot take the same step. Call it at the start of every step."""
        join = getattr(self._ddp, "_join_config", None)
        if join is not None and join.enable and not join.throw_on_early_termination:
            raise RuntimeError(
                "join() is not supported: a rank without batches falls behind. Give all ranks the same number with "
                "DistributedSampler(…, drop_last=True), or stop with model.join(throw_on_early_termination=True)."
            )
        if self._num_steps % _CHECK_EVERY == 0:
            for group in self.groups:
                _compare(_fingerprint(optimizer), group)
        self._num_steps += 1

    @contextmanager
    def per_rank_pass(self) -> Iterator[None]:
        """Run a first pass whose gradients stay on their rank, and report a failure in it to all ranks."""
        assert self._ddp is not None
        with self.report_failure(), self._ddp.no_sync():
            yield

    def first_pass(self, optimizer: Any) -> AbstractContextManager[None]:
        """Return the context of a loop's first pass: its gradients stay on their rank if the step may be sampled."""
        if self.per_rank:
            self.check(optimizer)
        self._was_per_rank = self.per_rank and optimizer.will_sample is not False
        return self.per_rank_pass() if self._was_per_rank else nullcontext()

    def was_first_pass_per_rank(self, optimizer: Any, sampled: bool | None) -> bool:
        """Return whether the gradients of a loop's first pass stayed on their rank, and check that the ranks agree."""
        was_per_rank, self._was_per_rank = self._was_per_rank, None
        if self.groups and not self.per_rank:
            self.check(optimizer)
        if self.per_rank and was_per_rank is None and sampled is not False:
            raise RuntimeError("sync='rank' needs a first pass `with optimizer.no_sync():`, or step() with a closure.")
        return bool(was_per_rank)

    @contextmanager
    def report_failure(self) -> Iterator[None]:
        """Run what comes before `exchange`. If it fails on one rank, all ranks raise.

        If the body communicates itself, as SyncBatchNorm does, the other ranks wait until the group's timeout.
        """
        try:
            yield
        except Exception:
            with suppress(RuntimeError):
                self._gather(math.nan, _FAILED)
            raise

    def take(self, gradients: Gradients, scaler: Any, needs_same: bool) -> "Gradient | None":
        """Return a first gradient that stayed on its rank. None if no rank has one.

        Args:
            gradients: take it from here.
            scaler: what scaled the loss, if anything.
            needs_same: whether the ranks must have gradients of the same parameters.
        """
        with self.report_failure():
            own = gradients.take(scaler)
            norm = None if own is None else own.norm
        has_gradient = [parameter.grad is not None for parameter in gradients.all.parameters]
        norms = self.exchange(norm, has_gradient, needs_same)
        return PerRankGradient(own, self, norms) if own is not None and norms else None

    def exchange(self, norm: Tensor | None, gradients: list[bool], needs_same: bool) -> list[float]:
        """Return the gradient norms of all ranks, or none if no rank has a gradient. Raise if a rank has failed.

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
        if set(kinds) == {_NOTHING}:
            return []
        if _NOTHING in kinds or (needs_same and len(set(kinds)) > 1):
            raise RuntimeError("The ranks have gradients of different parameters in the first pass: use sync='global'.")
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
        return [pair.tolist() for pair in found]


def _groups(ddp: DistributedDataParallel | None, sharded: list[Any]) -> list[Any]:
    """Return the process groups whose ranks train together, without groups of one process."""
    found = [] if ddp is None else [ddp.process_group]
    for mesh in dict.fromkeys(parameter.device_mesh for parameter in sharded):
        found += mesh.get_all_groups()
    return [group for group in dict.fromkeys(found) if torch.distributed.get_world_size(group) > 1]


def _check_per_rank(ddp: DistributedDataParallel | None, sharded: list[Any]) -> None:
    if sharded:
        raise ValueError("sync='rank' needs all weights on every rank, but these are sharded: use sync='global'.")
    if ddp is None:
        raise ValueError("sync='rank' needs DDP: pass the DistributedDataParallel module as model=.")


def _compare(own: dict[str, str], group: Any) -> None:
    found: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(found, own, group=group)
    for name in own:
        other = next((rank for rank, one in enumerate(found) if one.get(name) != found[0][name]), None)
        if other is not None:
            first, second = (torch.distributed.get_global_rank(group, rank) for rank in (0, other))
            raise RuntimeError(
                f"The ranks do not agree on {name}: rank {first} has {found[0][name]}, rank {second} has "
                f"{found[other].get(name)}. Give all ranks the same settings, seed and checkpoint."
            )


def _fingerprint(optimizer: Any) -> dict[str, str]:
    """Return what must be equal on all ranks, as text."""
    shapes = [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
    plain = (bool, int, float, str, tuple, type(None))
    groups = [{name: v for name, v in group.items() if isinstance(v, plain)} for group in optimizer.param_groups]
    slots = ("when", "where", "between")
    settings = (*slots, "sync", "max_grad_norm", "guard", *optimizer._settings)
    return {
        "the method": type(optimizer).__name__,
        "the base": type(optimizer.base).__name__,
        **{name: repr(getattr(optimizer, name)) for name in settings},
        "the number of parameters": str(len(shapes)),
        "the parameters' shapes": _checksum(shapes),
        **{f"group {i}": repr(group) for i, group in enumerate(groups)},
        "the steps so far": repr(optimizer._records.counters()),
        **{f"the state of {slot}": _checksum(getattr(optimizer, slot).state_dict()) for slot in slots},
    }


def _checksum(thing: object) -> str:
    return f"checksum {zlib.crc32(repr(thing).encode()):08x}"


class PerRankGradient(Gradient):
    """A first gradient that stayed on its rank: the perturbation follows it, everything else the ranks' mean.

    Args:
        own: the gradient on this rank.
        ranks: what averages.
        norms: the norms of all ranks' gradients. Their root mean square is ‖g‖ until the gradients are averaged.
    """

    def __init__(self, own: Gradient, ranks: Ranks, norms: list[float]) -> None:
        super().__init__(own.members, own.tensors)
        self._ranks, self._own_norm, self.flat = ranks, own.norm, own.flat
        self.norm = own.norm.new_tensor(math.sqrt(sum(norm * norm for norm in norms) / len(norms)))

    @property
    def length(self) -> Tensor:
        """The norm of this rank's gradient."""
        return self._own_norm

    def averaged(self) -> Gradient:
        """Average the tensors over the ranks in place."""
        self._ranks.average_(self.flat.buffers)
        foreach.copy_(self.tensors, self.flat.views(self.tensors))
        self.norm = self.flat.norm()
        return self

    def copy(self, watch: int | None, whole: bool) -> PSF | None:
        """Copy the tensors and average the copies."""
        psf = super().copy(watch, whole)
        if psf is not None:
            psf.average(self._ranks.average_)
            if whole:
                self.norm = psf.flat.norm()
        return psf
