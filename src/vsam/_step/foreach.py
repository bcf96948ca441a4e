"""Arithmetic on lists of tensors: the only file that calls `torch._foreach_*`.

On small networks the number of tensors costs more than the arithmetic: about a microsecond per tensor and operator on
the CPU, a kernel launch on a GPU. `FlatBuffers` packs small tensors into one buffer, on which norms and differences are
single operators. Large tensors stay where they are.
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from vsam.distributed import shards

_SMALL = 32_768
"""Below this many elements a copy is cheaper than a separate operator."""

HOST = "cpu"
"""The device type whose numbers can be read without a sync. Any other string treats every device as asynchronous."""

_FUSED = {(torch.float32, "cpu"), (torch.float64, "cpu"), (torch.float32, "cuda")}
_DTYPE, _DEVICE = attrgetter("dtype"), attrgetter("device")
_flatten, _unflatten = torch._C._nn.flatten_dense_tensors, torch._C._nn.unflatten_dense_tensors
_vector_norm: Callable[..., Tensor] = torch.linalg.vector_norm
_clone: Any = getattr(torch, "_foreach_clone", None)  # not in torch 2.6


class BufferLayout:
    """Tensors of a list that share a buffer in `FlatBuffers`: the small ones of each device and dtype."""

    def __init__(self, like: Sequence[Tensor]) -> None:
        groups: dict[Any, list[int]] = {}
        self.shards = shards.groups_of(like) if shards.CLASSES else None
        if self.shards is not None:
            like = shards.local(list(like))
        self._sizes = [tensor.numel() for tensor in like]
        for i, (tensor, size) in enumerate(zip(like, self._sizes, strict=True)):
            key: Any = (tensor.device, tensor.dtype) if size < _SMALL else i
            groups.setdefault(key if self.shards is None else (key, self.shards[i]), []).append(i)
        self.joined = [indices for indices in groups.values() if len(indices) > 1]
        self.single = [indices[0] for indices in groups.values() if len(indices) == 1]
        self.num_tensors = len(like)
        dtypes = {*map(_DTYPE, like)}
        self.dtype = torch.float64 if torch.float64 in dtypes else torch.float32
        self.may_overflow = torch.float16 in dtypes
        firsts = [*(indices[0] for indices in self.joined), *self.single]
        self.buffer_shards = None if self.shards is None else [self.shards[i] for i in firsts]

    @cached_property
    def spans(self) -> list[tuple[int, int, int]]:
        """The number of each tensor's buffer, its start and its end."""
        spans = [(0, 0, 0)] * self.num_tensors
        for number, indices in enumerate([*self.joined, *([i] for i in self.single)]):
            ends = [0, *accumulate(self._sizes[i] for i in indices)]
            for i, (start, end) in zip(indices, pairwise(ends), strict=True):
                spans[i] = (number, start, end)
        return spans


class FlatBuffers:
    """The values of a list of tensors in few buffers: copies of the small ones, the large ones themselves.

    Args:
        tensors: the list.
        layout: of this list, if known from an earlier step.
    """

    def __init__(self, tensors: list[Tensor], layout: BufferLayout | None = None) -> None:
        self.layout = BufferLayout(tensors) if layout is None else layout
        tensors = tensors if self.layout.shards is None else shards.local(tensors)
        self.buffers = [_flatten([tensors[i] for i in group]) for group in self.layout.joined]
        self.buffers += [tensors[i] for i in self.layout.single]

    def norm(self) -> Tensor:
        """The L2 norm of all values, in at least single precision, on the first buffer's device."""
        return _joint_norm(self.buffers, self.layout.buffer_shards)

    def norm_of(self, positions: list[int]) -> Tensor:
        """The L2 norm of some of the tensors."""
        spans = [self.layout.spans[i] for i in positions]
        numbers, starts, ends = zip(*spans, strict=True)
        if len({*numbers}) == 1 and starts[1:] == ends[:-1] and self.layout.shards is None:  # neighbours
            return _joint_norm([self.buffers[numbers[0]].reshape(-1)[starts[0] : ends[-1]]])
        parts = [self.buffers[number].reshape(-1)[start:end] for number, start, end in spans]
        return _joint_norm(parts, None if self.layout.shards is None else [self.layout.shards[i] for i in positions])

    def detach_owned(self) -> "FlatBuffers":
        """Copy the large tensors too, so that no other code can write to any buffer."""
        num_joined = len(self.layout.joined)
        self.buffers[num_joined:] = copies([buffer.detach() for buffer in self.buffers[num_joined:]])
        return self

    def views(self, like: list[Tensor]) -> list[Tensor]:
        """The values as a list of tensors in the shapes of `like`, without copying."""
        views = list(like) if self.layout.shards is None else shards.local(like)
        for indices, buffer in zip(self.layout.joined, self.buffers, strict=False):
            for i, part in zip(indices, _unflatten(buffer, [views[i] for i in indices]), strict=True):
                views[i] = part
        for i, buffer in zip(self.layout.single, self.buffers[len(self.layout.joined) :], strict=True):
            views[i] = buffer
        return views if self.layout.shards is None else shards.wrapped(views, like)


def norm(tensors: list[Tensor]) -> Tensor:
    """The L2 norm over all tensors, in at least single precision, on the first one's device."""
    return FlatBuffers(tensors).norm()


def _joint_norm(tensors: list[Tensor], owners: list[shards.Groups] | None = None) -> Tensor:
    if not tensors:
        return torch.zeros(())
    dtypes = {*map(_DTYPE, tensors)}
    wide = torch.float64 if torch.float64 in dtypes else torch.float32
    dtype = wide if dtypes - {wide} else None  # naming it costs more than the norm of a small buffer
    if owners is not None:
        return _norm_over_shards(tensors, dtype, owners)
    if len(tensors) == 1:
        return _vector_norm(tensors[0], dtype=dtype)
    norms, device = torch._foreach_norm(tensors, 2, dtype), tensors[0].device
    return _vector_norm(torch.stack([norm.to(device) for norm in norms] if device.type != "cpu" else norms))


def _norm_over_shards(tensors: list[Tensor], dtype: torch.dtype | None, owners: list[shards.Groups]) -> Tensor:
    norms = [_vector_norm(tensor, dtype=dtype) for tensor in tensors]
    squares = [norm.to(norms[0].device, torch.float64).square() for norm in norms]
    return shards.over_all(squares, owners).sqrt().to(norms[0].dtype)


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """New tensors with the same values and layout."""
    if not tensors:
        return []
    if shards.CLASSES and (own := shards.local(tensors)) is not tensors:
        return shards.wrapped(copies(own), tensors)
    return list(_clone(tensors)) if _clone is not None else [tensor.clone() for tensor in tensors]


def copy_(targets: list[Tensor], sources: list[Tensor]) -> None:
    """`target ← source` in place, bit for bit."""
    if shards.CLASSES:
        targets, sources = shards.local(targets), shards.local(sources)
    if targets:
        torch._foreach_copy_(targets, sources)


def add_(targets: list[Tensor], others: list[Tensor], weight: float = 1.0) -> None:
    """`target ← target + weight · other`."""
    if shards.CLASSES:
        targets, others = shards.local(targets), shards.local(others)
    if targets:
        torch._foreach_add_(targets, others, alpha=weight)


def add_scaled_(targets: list[Tensor], others: list[Tensor], weight: float | Tensor, found_inf: Tensor | None) -> None:
    """`target ← target + weight · other`, but nothing if `found_inf` is 1. Tensor arguments stay on the device."""
    if not targets:
        return
    if shards.CLASSES:
        targets, others = shards.local(targets), shards.local(others)
    if _can_fuse(targets, others):
        _fused_add_(targets, others, weight, found_inf)
    else:
        flat = FlatBuffers(others)
        # In half precision, one over a small norm would overflow.
        wide = flat.layout.dtype
        weights = [weight.to(b.device) if isinstance(weight, Tensor) else weight for b in flat.buffers]
        flat.buffers = [(b.to(wide) * w).to(b.dtype) for b, w in zip(flat.buffers, weights, strict=True)]
        if found_inf is not None:
            zero_unless_(found_inf == 0, flat.buffers)
        torch._foreach_add_(targets, flat.views(others))


def _can_fuse(targets: list[Tensor], others: list[Tensor]) -> bool:
    """Return whether the fused kernel is correct. It checks no strides and dtypes, and fails in bfloat16 on a CPU."""
    everything = targets + others
    dtypes, devices = {*map(_DTYPE, everything)}, {*map(_DEVICE, everything)}
    if len(dtypes) > 1 or len(devices) > 1 or not all(map(Tensor.is_contiguous, everything)):
        return False
    return (dtypes.pop(), devices.pop().type) in _FUSED


def _fused_add_(
    targets: list[Tensor], others: list[Tensor], weight: float | Tensor, found_inf: Tensor | None = None
) -> None:
    """Add in one kernel that can also be told to do nothing: a fused SGD step without momentum is exactly this."""
    torch._fused_sgd_(
        targets,
        others,
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=weight,
        dampening=0.0,
        nesterov=False,
        maximize=True,
        is_first_step=False,
        found_inf=found_inf,
    )
    # The kernel does not bump the version counters, by which autograd notices in-place changes.
    torch._C._increment_version(targets)


def is_on_host(number: Tensor) -> bool:
    """Return whether a number can be read without a device sync."""
    return number.device.type == HOST


def is_not_finite(norm: Tensor) -> Tensor:
    """1 if a norm is infinite or NaN, else 0, in single precision and on its device."""
    return (norm * 0).ne_(0).to(torch.float32)


def finiteness(tensors: list[Tensor], layout: BufferLayout) -> Tensor | None:
    """1 if all values are finite, infinity if not. None where their norm is the cheaper check.

    The kernel is that of gradient scalers, with a scale of 1. It writes what it reads, so it is for small tensors.
    """
    is_small = len(layout.joined) == 1 and not layout.single and layout.shards is None
    if not is_small or not all(map(Tensor.is_contiguous, tensors)):
        return None
    flag = torch.zeros((), dtype=torch.float32, device=tensors[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, flag, torch.ones_like(flag))
    return 1 / (1 - flag)


def found_inf(norms: list[Tensor]) -> Tensor:
    """1 if one of the norms is not finite, else 0, on their device and named as in torch."""
    total = norms[0]
    for norm in norms[1:]:
        total = total + norm
    return is_not_finite(total)


def are_finite(norms: list[Tensor]) -> bool:
    """Return whether all norms are finite: one device sync, if they are not on the host."""
    return all(map(math.isfinite, norms)) if all(map(is_on_host, norms)) else not found_inf(norms)


def subtract_from_(targets: list[Tensor], others: list[Tensor]) -> None:
    """`target ← other − target`."""
    for target, other in zip(targets, others, strict=True):
        torch.sub(other, target, out=target)


def multiply_(targets: list[Tensor], factors: list[Tensor] | Tensor) -> None:
    """`target ← target · factor`, with one factor (a 0-dim tensor) or one per tensor."""
    if not targets:
        return
    if shards.CLASSES:
        targets = shards.local(targets)
        factors = factors if isinstance(factors, Tensor) else shards.local(factors)
    if isinstance(factors, Tensor):
        by_device: dict[torch.device, list[Tensor]] = {}
        for target in targets:
            by_device.setdefault(target.device, []).append(target)
        for device, group in by_device.items():
            torch._foreach_mul_(group, factors.to(device))
    else:
        torch._foreach_mul_(targets, factors)


def absolute_(targets: list[Tensor], offset: float) -> None:
    """`target ← |target| + offset`."""
    if targets := shards.local(targets):
        torch._foreach_abs_(targets)
        torch._foreach_add_(targets, offset)


def lerp_(targets: list[Tensor], ends: list[Tensor], weight: Tensor) -> None:
    """`target ← target + weight · (end − target)`, with a weight that stays on the device."""
    if shards.CLASSES:
        targets, ends = shards.local(targets), shards.local(ends)
    if targets:
        torch._foreach_lerp_(targets, ends, [weight.to(target) for target in targets])


def dot(left: list[Tensor], right: list[Tensor]) -> Tensor:
    """`⟨left, right⟩` over all tensors, in at least single precision."""
    if not left:
        return torch.zeros(())
    first = FlatBuffers(left)
    second = FlatBuffers(right, first.layout)
    dtype, device = first.layout.dtype, first.buffers[0].device
    products = zip(first.buffers, second.buffers, strict=True)
    sums = [(a.to(dtype) * b).sum().to(device) for a, b in products]
    owners = first.layout.buffer_shards
    return torch.stack(sums).sum() if owners is None else shards.over_all(sums, owners)


def zero_unless_(condition: Tensor, targets: list[Tensor]) -> None:
    """`target ← target if condition else 0`, decided on the device. Works where the target is not finite, too."""
    for target in shards.local(targets) if shards.CLASSES else targets:
        target.masked_fill_(~condition.to(target.device), 0)


def keep_if_(condition: Tensor, targets: list[Tensor], others: list[Tensor | None]) -> None:
    """`target ← target if condition else other`, decided on the device. None stands for zero."""
    if shards.CLASSES:
        targets, others = shards.local(targets), shards.local(others)
    zero_unless_(condition, targets)
    for target, other in zip(targets, others, strict=True):
        if other is not None:
            target.add_(other * ~condition.to(target.device))


def kinds_of(tensors: list[Tensor]) -> list[Any]:
    """Return what `model.to(…)` changes: all dtypes, and the devices of the first and the last tensor."""
    return [*map(_DTYPE, tensors), *map(_DEVICE, tensors[:1] + tensors[-1:])]
