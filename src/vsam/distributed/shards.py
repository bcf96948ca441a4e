"""Sharded tensors (DTensor): the shards of this process, and sums over all processes.

Elementwise arithmetic works on the local shards. A norm or a dot product also needs the other processes' part, which is
one number per sharded mesh dimension.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

CLASSES: set[type] = set()
"""The types of sharded tensors seen so far. Empty in most programs, where checking it costs nothing."""

Groups = tuple[tuple[Any, str], ...]
"""The process groups over which a tensor is sharded, each with its device type. Empty for a tensor that is complete."""


def notice(tensors: Iterable[Tensor]) -> None:
    """Add the types of these tensors that are sharded to `CLASSES`."""
    module = sys.modules.get("torch.distributed.tensor")  # takes a second to import, and is where DTensors come from
    if module is not None:
        CLASSES.update(type(tensor) for tensor in tensors if isinstance(tensor, module.DTensor))


def local(tensors: list[Any]) -> list[Any]:
    """Return the list with each sharded tensor replaced by its local shard, or the list itself if none is sharded."""
    if CLASSES.isdisjoint(map(type, tensors)):
        return tensors
    # Not to_local(), which returns another object when gradients are enabled.
    return [tensor._local_tensor if type(tensor) in CLASSES else tensor for tensor in tensors]


def wrapped(shards: list[Tensor], like: Sequence[Any]) -> list[Tensor]:
    """Return sharded tensors made of these shards, each placed like its counterpart."""
    pairs = zip(shards, like, strict=True)
    return [_placed(shard, other) if type(other) in CLASSES else shard for shard, other in pairs]


def _placed(shard: Tensor, like: Any) -> Tensor:
    shape = {"shape": like.shape, "stride": like.stride()}
    placed: Tensor = type(like).from_local(shard, like.device_mesh, like.placements, run_check=False, **shape)
    return placed


def groups_of(tensors: Sequence[Any]) -> list[Groups] | None:
    """Return the groups over which each tensor is sharded, or None if no tensor is sharded."""
    if CLASSES.isdisjoint(map(type, tensors)):
        return None
    return [_groups(tensor) if type(tensor) in CLASSES else () for tensor in tensors]


def _groups(tensor: Any) -> Groups:
    mesh = tensor.device_mesh
    if any(placement.is_partial() for placement in tensor.placements):
        raise ValueError(f"A parameter is placed as {tensor.placements}: redistribute it to Replicate() or Shard(dim).")
    sharded = [i for i, placement in enumerate(tensor.placements) if not placement.is_replicate() and mesh.size(i) > 1]
    return tuple((mesh.get_group(i), mesh.device_type) for i in sharded)


def placed(parameters: list[Any], gradients: list[Any]) -> list[Tensor]:
    """The gradients, each sharded like its parameter: tensor parallelism may leave them as partial sums."""
    for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if type(gradient) in CLASSES and gradient.placements != parameter.placements:
            gradients[i] = parameter.grad = gradient.redistribute(placements=parameter.placements)
    return gradients


def over_all(numbers: list[Tensor], groups: Sequence[Groups]) -> Tensor:
    """Return the sum of numbers over all processes, given the groups over which each number's tensors are sharded.

    One all-reduce per group. Nearly always there is one group.
    """
    by_groups: dict[Groups, Tensor] = {}
    for number, own in zip(numbers, groups, strict=True):
        by_groups[own] = by_groups[own] + number if own in by_groups else number
    sums = torch.stack(list(by_groups.values()))
    for pair in dict.fromkeys(pair for own in by_groups for pair in own):
        group, device = pair
        chosen = [i for i, own in enumerate(by_groups) if pair in own]
        part = sums[chosen].to(device)  # the mesh's device, even if the shards are offloaded to the CPU
        torch.distributed.all_reduce(part, group=group)
        sums[chosen] = part.to(sums.device)
    return sums.sum()


def version(tensor: Tensor) -> int:
    """The number of writes to a tensor, which a sharded one counts on its shard."""
    return tensor._local_tensor._version if type(tensor) in CLASSES else tensor._version  # type: ignore[attr-defined]


def units(model: object) -> list[Any]:
    """Return the modules of a model to which `fully_shard` was applied."""
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    return [part for part in model.modules() if isinstance(part, kind)] if isinstance(model, nn.Module) else []


def reshard(modules: list[Any]) -> None:
    """Free gathered weights, which do not follow when their shards move.

    A backward pass frees them by itself. A forward pass without one does not.
    """
    for module in modules:
        module.reshard()


def refuse_fsdp1(parameters: Iterable[Tensor], model: nn.Module | None) -> None:
    """Refuse FSDP1, whose shards are plain tensors, so that each process would take the norm of its own."""
    modules = model.modules() if model is not None else ()
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in modules) or any(
        getattr(parameter, "_fsdp_flattened", False) for parameter in parameters
    ):
        raise ValueError(
            "FullyShardedDataParallel (FSDP1) is not supported, as its shards look like whole tensors. Use FSDP2: "
            "torch.distributed.fsdp.fully_shard(model)."
        )
