"""Sharded tensors (DTensor): the shards of this process, and sums over all processes.

Elementwise arithmetic works on the local shards. A norm or a dot product also needs the other processes' part, which is
one number per sharded mesh dimension.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "CLASSES",
    "Groups",
    "groups_of",
    "local",
    "notice",
    "over_all",
    "refuse_fsdp1",
    "reshard",
    "units",
    "wrapped",
]

CLASSES: set[type] = set()
"""The types of sharded tensors seen so far. Empty in most programs, so that checking costs nothing there."""

Groups = tuple[tuple[Any, str], ...]
"""The process groups over which a tensor is sharded, each with its device type; none if this process has all of it."""


def notice(tensors: Iterable[Tensor]) -> None:
    """Learn the types of sharded tensors that are in use."""
    module = sys.modules.get("torch.distributed.tensor")  # takes a second to import; where DTensors exist, it has been
    if module is not None:
        CLASSES.update({type(tensor) for tensor in tensors if isinstance(tensor, module.DTensor)})


def local(tensors: list[Any]) -> list[Any]:
    """The shards of the sharded ones, and the others as they are; the list itself if none is sharded."""
    if CLASSES.isdisjoint(map(type, tensors)):
        return tensors
    # Not to_local(), which returns another object when gradients are enabled.
    return [tensor._local_tensor if type(tensor) in CLASSES else tensor for tensor in tensors]


def wrapped(shards: list[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    """Sharded tensors made of these shards, each placed like its counterpart."""
    return [
        type(other).from_local(  # type: ignore[attr-defined]
            shard,
            other.device_mesh,  # type: ignore[attr-defined]
            other.placements,  # type: ignore[attr-defined]
            run_check=False,
            shape=other.shape,
            stride=other.stride(),
        )
        if type(other) in CLASSES
        else shard
        for shard, other in zip(shards, like, strict=True)
    ]


def groups_of(tensors: Sequence[Any]) -> list[Groups] | None:
    """For each tensor the groups over which it is sharded; None if no tensor is sharded."""
    if CLASSES.isdisjoint(map(type, tensors)):
        return None
    return [_groups(tensor) if type(tensor) in CLASSES else () for tensor in tensors]


def _groups(tensor: Any) -> Groups:
    mesh = tensor.device_mesh
    if any(placement.is_partial() for placement in tensor.placements):
        raise ValueError(
            f"A parameter of shape {tuple(tensor.shape)} is placed as {tensor.placements}, but the perturbation needs "
            "its values: redistribute it to Replicate() or Shard(dim)."
        )
    sharded = [i for i, placement in enumerate(tensor.placements) if not placement.is_replicate() and mesh.size(i) > 1]
    return tuple((mesh.get_group(i), mesh.device_type) for i in sharded)


def over_all(numbers: list[Tensor], groups: Sequence[Groups]) -> Tensor:
    """The sum of numbers over all processes, given for each number the groups over which its tensors are sharded.

    One all-reduce per group; nearly always there is one group.
    """
    by_groups: dict[Groups, Tensor] = {}
    for number, own in zip(numbers, groups, strict=True):
        by_groups[own] = by_groups[own] + number if own in by_groups else number
    sums = torch.stack(list(by_groups.values()))
    for group, device in dict.fromkeys(pair for own in by_groups for pair in own):
        chosen = [i for i, own in enumerate(by_groups) if (group, device) in own]
        part = sums[chosen].to(device)  # the mesh's device, even if the shards are offloaded to the CPU
        torch.distributed.all_reduce(part, group=group)
        sums[chosen] = part.to(sums.device)
    return sums.sum()


def units(model: object) -> list[Any]:
    """The modules of a model to which `fully_shard` was applied."""
    module = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(module, "FSDPModule", None)
    if kind is None or not isinstance(model, nn.Module):
        return []
    return [part for part in model.modules() if isinstance(part, kind)]


def reshard(modules: list[Any]) -> None:
    """Free gathered weights, which do not follow when their shards move.

    A backward pass does so by itself; a forward pass without one does not.
    """
    for module in modules:
        module.reshard()


def refuse_fsdp1(parameters: Iterable[Tensor], model: nn.Module | None) -> None:
    """Refuse FSDP1, whose shards are plain tensors: each process would take the norm of its own."""
    modules = model.modules() if model is not None else ()
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in modules) or any(
        getattr(parameter, "_fsdp_flattened", False) for parameter in parameters
    ):
        raise ValueError(
            "FullyShardedDataParallel (FSDP1) is not supported: each process would perturb along the gradient of its "
            "own shard, to a distance that grows with the number of processes. Use FSDP2: "
            "torch.distributed.fsdp.fully_shard(model)."
        )
