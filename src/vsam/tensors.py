"""Arithmetic on lists of tensors: the one file that knows `torch._foreach_*`.

On small networks the cost is not the arithmetic but the number of tensors: on the CPU each one costs about a
microsecond per operator, on a GPU a kernel launch. `Pack` therefore packs small tensors into one buffer, on which
norms and differences are single operators; large tensors stay where they are.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from vsam import shards

__all__ = [
    "Layout",
    "Pack",
    "Places",
    "Uniform",
    "absolute",
    "add_",
    "add_scaled_",
    "copies",
    "copy_",
    "dot",
    "found_inf",
    "is_not_finite",
    "is_on_host",
    "lerp_",
    "multiplied",
    "multiply_",
    "norm",
    "select_",
    "subtract_from_",
    "zero_unless_",
]

_SMALL = 32_768
"""Below this many elements a copy is cheaper than a separate operator."""

HOST = "cpu"
"""The device type whose numbers can be read without a sync; any other string treats every device as asynchronous."""

_FUSED = {(torch.float32, "cpu"), (torch.float64, "cpu"), (torch.float32, "cuda")}
_DTYPE, _DEVICE = attrgetter("dtype"), attrgetter("device")
_flatten, _unflatten = torch._C._nn.flatten_dense_tensors, torch._C._nn.unflatten_dense_tensors
_vector_norm: Callable[..., Tensor] = torch.linalg.vector_norm
_SINGLE = {torch.float32}
_clone: Any = getattr(torch, "_foreach_clone", None)


Kind = tuple[torch.dtype, torch.device]


class Uniform(list[Tensor]):
    """A list of tensors known to be contiguous, of one dtype and on one device, as fused kernels need them."""

    def __init__(self, tensors: Iterable[Tensor], kind: Kind) -> None:
        super().__init__(tensors)
        self.kind = kind


class Layout:
    """Which tensors of a list share a buffer in a `Pack`: the small ones of each device and dtype."""

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
        self.dtypes = [tensor.dtype for tensor in like]
        kinds = {(tensor.dtype, tensor.device) for tensor in like}
        self.kind = kinds.pop() if len(kinds) == 1 and self.shards is None else None
        self.is_one_buffer = len(self.joined) == 1 and not self.single and self.shards is None
        self.dtype = torch.float64 if torch.float64 in self.dtypes else torch.float32
        self.may_overflow = torch.float16 in self.dtypes

        buffers = [*(indices[0] for indices in self.joined), *self.single]
        self.buffer_shards = None if self.shards is None else [self.shards[i] for i in buffers]

    @cached_property
    def one(self) -> Tensor:
        """The number 1 on the tensors' device."""
        assert self.kind is not None
        return torch.ones((), dtype=torch.float32, device=self.kind[1])

    @cached_property
    def spans(self) -> list[tuple[int, int, int]]:
        """Where each tensor is: the number of its buffer, its start and its end."""
        spans = [(0, 0, 0)] * self.num_tensors
        for number, indices in enumerate([*self.joined, *([i] for i in self.single)]):
            ends = [0, *accumulate(self._sizes[i] for i in indices)]
            for i, (start, end) in zip(indices, pairwise(ends), strict=True):
                spans[i] = (number, start, end)
        return spans


class Pack:
    """The values of a list of tensors in few buffers: copies of the small ones, the large ones themselves.

    Args:
        tensors: the list.
        layout: of this list, if known from an earlier step.
    """

    def __init__(self, tensors: list[Tensor], layout: Layout | None = None) -> None:
        self.layout = Layout(tensors) if layout is None else layout
        if self.layout.is_one_buffer:
            self.buffers = [_flatten(tensors)]
        else:
            tensors = tensors if self.layout.shards is None else shards.local(tensors)
            self.buffers = [_flatten([tensors[i] for i in group]) for group in self.layout.joined]
            self.buffers += [tensors[i] for i in self.layout.single]

    @property
    def _norm_dtype(self) -> torch.dtype | None:
        """Passing a dtype costs more than the norm of a small buffer, so it is left out where it changes nothing."""
        dtypes = {*map(_DTYPE, self.buffers)}
        if dtypes == _SINGLE:
            return None
        wide = torch.float64 if torch.float64 in dtypes else torch.float32
        return wide if dtypes - {wide} else None

    def norm(self) -> Tensor:
        """The L2 norm of all values, in at least single precision, on the first buffer's device."""
        return _joint_norm(self.buffers, self._norm_dtype, self.layout.buffer_shards)

    def norm_of(self, positions: list[int]) -> Tensor:
        """The L2 norm of some of the tensors."""
        spans = self.layout.spans
        if self.layout.is_one_buffer and positions == [*range(positions[0], positions[0] + len(positions))]:
            start, end = spans[positions[0]][1], spans[positions[-1]][2]
            return _vector_norm(self.buffers[0].narrow(0, start, end - start), dtype=self._norm_dtype)
        spans = [spans[i] for i in positions]
        parts = [self.buffers[i].reshape(-1)[start:end] for i, start, end in spans]
        owners = None if self.layout.shards is None else [self.layout.shards[i] for i in positions]
        return _joint_norm(parts, self._norm_dtype, owners)

    def detach_owned(self) -> "Pack":
        """Copy the large tensors too, so that no other code can write to any buffer."""
        num_joined = len(self.layout.joined)
        if num_joined < len(self.buffers):
            self.buffers[num_joined:] = copies([buffer.detach() for buffer in self.buffers[num_joined:]])
        return self

    def views(self, like: list[Tensor]) -> list[Tensor]:
        """The values as a list of tensors in the shapes of `like`, without copying."""
        if self.layout.is_one_buffer:
            assert self.layout.kind is not None
            return Uniform(_unflatten(self.buffers[0], like), self.layout.kind)
        views = list(like) if self.layout.shards is None else shards.local(like)
        for indices, buffer in zip(self.layout.joined, self.buffers, strict=False):
            parts = _unflatten(buffer, [views[i] for i in indices])
            for i, part in zip(indices, parts, strict=True):
                views[i] = part
        for i, buffer in zip(self.layout.single, self.buffers[len(self.layout.joined) :], strict=True):
            views[i] = buffer
        return views if self.layout.shards is None else shards.wrapped(views, like)


class Places:
    """Tensors that are copied and restored again and again, one copy at a time.

    Flat views of the small ones and the buffer for their copies are cached until a tensor's storage is replaced.
    """

    def __init__(self, tensors: list[Tensor], layout: Layout | None = None) -> None:
        self.tensors, self._layout = tensors, Layout(tensors) if layout is None else layout
        self._pointers: list[int] = []
        self._small: list[_SideBySide] = []
        self._others: list[Tensor] = []

    def keep(self) -> Callable[[], None]:
        """Copy the tensors; returns a function that restores them in place, bit for bit."""
        values = self.tensors if self._layout.shards is None else shards.local(self.tensors)
        pointers = [*map(Tensor.data_ptr, values)]
        if pointers != self._pointers:
            self._look(values)
            self._pointers = pointers
        for group in self._small:
            group.keep()
        return partial(self._set_back, copies(self._others))

    def _look(self, values: list[Tensor]) -> None:
        groups = [[values[i] for i in group] for group in self._layout.joined]
        are_flat = [all(map(Tensor.is_contiguous, group)) for group in groups]
        self._small = [_SideBySide(group) for group, is_flat in zip(groups, are_flat, strict=True) if is_flat]
        self._others = [tensor for group, flat in zip(groups, are_flat, strict=True) if not flat for tensor in group]
        self._others += [values[i] for i in self._layout.single]
        kind = self._layout.kind
        if kind is not None and all(are_flat) and all(values[i].is_contiguous() for i in self._layout.single):
            self.tensors = Uniform(self.tensors, kind)
        else:
            self.tensors = list(self.tensors)

    def _set_back(self, others: list[Tensor]) -> None:
        for group in self._small:
            group.set_back()
        copy_(self._others, others)


class _SideBySide:
    """Contiguous tensors and one buffer that holds a copy of them."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._flat = [tensor.detach().view(-1) for tensor in tensors]
        self._buffer = torch.cat(self._flat)
        self._copies = [*torch.split(self._buffer, [*map(Tensor.numel, self._flat)])]

    def keep(self) -> None:
        torch.cat(self._flat, out=self._buffer)

    def set_back(self) -> None:
        torch._foreach_copy_(self._flat, self._copies)


def norm(tensors: list[Tensor], layout: Layout | None = None) -> Tensor:
    """The L2 norm over all tensors, in at least single precision, on the first one's device."""
    return Pack(tensors, layout).norm()


def _joint_norm(tensors: list[Tensor], dtype: torch.dtype | None, owners: list[shards.Groups] | None = None) -> Tensor:
    if not tensors:
        return torch.zeros(())
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
    if _clone is not None:
        return list(_clone(tensors))
    fresh = [torch.empty_like(tensor) for tensor in tensors]
    torch._foreach_copy_(fresh, tensors)
    return fresh


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
    if isinstance(targets, Uniform) and _can_fuse(targets, others):
        _fused_add_(targets, others, weight)
    elif targets:
        torch._foreach_add_(targets, others, alpha=weight)


def add_scaled_(targets: list[Tensor], others: list[Tensor], weight: float | Tensor, unless: Tensor | None) -> None:
    """`target ← target + weight · other`, but nothing if `unless` is 1; tensor arguments stay on the device."""
    if not targets:
        return
    if shards.CLASSES:
        targets, others = shards.local(targets), shards.local(others)
    if _can_fuse(targets, others):
        _fused_add_(targets, others, weight, unless)
    else:
        pack = Pack(others)
        # In half precision, one over a small norm would overflow.
        wide = pack.layout.dtype
        weights = [weight.to(b.device) if isinstance(weight, Tensor) else weight for b in pack.buffers]
        pack.buffers = [(b.to(wide) * w).to(b.dtype) for b, w in zip(pack.buffers, weights, strict=True)]
        if unless is not None:
            zero_unless_(unless == 0, pack.buffers)
        torch._foreach_add_(targets, pack.views(others))


def _fused_add_(
    targets: list[Tensor], others: list[Tensor], weight: float | Tensor, unless: Tensor | None = None
) -> None:
    """A fused SGD step without momentum is exactly this, in one kernel that can also be told to do nothing."""
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
        found_inf=unless,
    )
    # The kernel does not bump the version counters, by which autograd notices in-place changes.
    torch._C._increment_version(targets)


def found_inf(tensors: list[Tensor], layout: Layout, before: Tensor | None = None) -> Tensor | None:
    """1 if a value is not finite, or if `before` is 1; None where a norm is a cheaper check.

    The kernel is that of gradient scalers, with a scale of 1. It writes what it reads, so it is for small tensors.
    """
    if not (layout.is_one_buffer and isinstance(tensors, Uniform)):
        return None
    flag = torch.zeros_like(layout.one) if before is None else before
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, flag, layout.one)
    return flag


def is_on_host(number: Tensor) -> bool:
    """Whether a number can be read without a device sync."""
    return number.device.type == HOST


def is_not_finite(norm: Tensor) -> Tensor:
    """1 if a norm is infinite or NaN, else 0, in single precision and on its device."""
    return (norm * 0).ne_(0).to(torch.float32)


def _can_fuse(targets: list[Tensor], others: list[Tensor]) -> bool:
    """Whether the fused kernel is correct: it checks neither strides nor dtypes, and fails in bfloat16 on the CPU."""
    kind = targets.kind if isinstance(targets, Uniform) else _kind(targets)
    if kind is None or (kind[0], kind[1].type) not in _FUSED:
        return False
    return kind == (others.kind if isinstance(others, Uniform) else _kind(others))


def _kind(tensors: list[Tensor]) -> Kind | None:
    """The dtype and device of all tensors; None if they differ, or if one is not contiguous."""
    if not all(map(Tensor.is_contiguous, tensors)):
        return None
    kinds = {*zip(map(_DTYPE, tensors), map(_DEVICE, tensors), strict=True)}
    return kinds.pop() if len(kinds) == 1 else None


def subtract_from_(targets: list[Tensor], others: list[Tensor]) -> None:
    """`target ← other − target`."""
    if len(targets) == 1:
        torch.sub(others[0], targets[0], out=targets[0])
    elif targets:
        torch._foreach_neg_(targets)
        torch._foreach_add_(targets, others)


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


def multiplied(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    """`left · right`, as new tensors."""
    if shards.CLASSES and (own := shards.local(left)) is not left:
        return shards.wrapped(multiplied(own, shards.local(right)), left)
    return list(torch._foreach_mul(left, right)) if left else []


def absolute(tensors: list[Tensor], offset: float) -> list[Tensor]:
    """`|tensor| + offset`, as new tensors."""
    if not tensors:
        return []
    if shards.CLASSES and (own := shards.local(tensors)) is not tensors:
        return shards.wrapped(absolute(own, offset), tensors)
    results = list(torch._foreach_abs(tensors))
    torch._foreach_add_(results, offset)
    return results


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
    first = Pack(left)
    second = Pack(right, first.layout)
    dtype, device = first.layout.dtype, first.buffers[0].device
    products = zip(first.buffers, second.buffers, strict=True)
    sums = [(a.to(dtype) * b).sum().to(device) for a, b in products]
    owners = first.layout.buffer_shards
    return torch.stack(sums).sum() if owners is None else shards.over_all(sums, owners)


def zero_unless_(condition: Tensor, targets: list[Tensor]) -> None:
    """`target ← target if condition else 0`, decided on the device; also where the target is not finite."""
    for target in shards.local(targets) if shards.CLASSES else targets:
        target.masked_fill_(~condition.to(target.device), 0)


def select_(condition: Tensor, targets: list[Tensor], others: list[Tensor | None]) -> None:
    """`target ← target if condition else other`, decided on the device; None stands for zero."""
    if shards.CLASSES:
        targets, others = shards.local(targets), shards.local(others)
    zero_unless_(condition, targets)
    for target, other in zip(targets, others, strict=True):
        if other is not None:
            target.add_(other * ~condition.to(target.device))
