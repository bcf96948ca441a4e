"""Arithmetic on lists of tensors: the one file that knows `torch._foreach_*`."""

import torch
from torch import Tensor

__all__ = [
    "absolute",
    "add_",
    "all_finite",
    "copies",
    "copy_",
    "dot",
    "lerp_",
    "multiply_",
    "negate_",
    "norms",
    "own",
    "select_",
    "total",
    "zero_unless_",
]


def copies(tensors: list[Tensor]) -> list[Tensor]:
    """New tensors with the same values and layout."""
    fresh = [torch.empty_like(tensor) for tensor in tensors]
    copy_(fresh, tensors)
    return fresh


def copy_(targets: list[Tensor], sources: list[Tensor]) -> None:
    """`target ← source`, bit for bit, without moving storage."""
    if targets:
        torch._foreach_copy_(targets, sources)


def add_(targets: list[Tensor], others: list[Tensor], weight: float = 1.0) -> None:
    """`target ← target + weight · other`."""
    if targets:
        torch._foreach_add_(targets, others, alpha=weight)


def multiply_(targets: list[Tensor], factors: list[Tensor] | Tensor) -> None:
    """`target ← target · factor`, with one factor (a tensor of no dimensions) or one a tensor."""
    if not targets:
        return
    if isinstance(factors, Tensor):
        by_device: dict[torch.device, list[Tensor]] = {}
        for target in targets:
            by_device.setdefault(target.device, []).append(target)
        for device, group in by_device.items():
            torch._foreach_mul_(group, factors.to(device))
    else:
        torch._foreach_mul_(targets, factors)


def negate_(targets: list[Tensor]) -> None:
    """`target ← −target`."""
    if targets:
        torch._foreach_neg_(targets)


def absolute(tensors: list[Tensor], offset: float) -> list[Tensor]:
    """`|tensor| + offset`, as new tensors."""
    if not tensors:
        return []
    results = list(torch._foreach_abs(tensors))
    torch._foreach_add_(results, offset)
    return results


def norms(tensors: list[Tensor]) -> list[Tensor]:
    """The L2 norm of each tensor, in at least single precision, all on the first one's device."""
    if not tensors:
        return []
    dtype, device = _wide(tensors), tensors[0].device
    return [norm.to(device) for norm in torch._foreach_norm(tensors, 2, dtype)]


def total(norms: list[Tensor]) -> Tensor:
    """The L2 norm over all tensors, given the norm of each."""
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())


def lerp_(targets: list[Tensor], ends: list[Tensor], weight: Tensor) -> None:
    """`target ← target + weight · (end − target)`, with a weight that stays on the device."""
    if targets:
        torch._foreach_lerp_(targets, ends, [weight.to(target) for target in targets])


def dot(left: list[Tensor], right: list[Tensor]) -> Tensor:
    """`⟨left, right⟩` over all tensors, in at least single precision."""
    if not left:
        return torch.zeros(())
    dtype, device = _wide(left), left[0].device
    return torch.stack([(a.to(dtype) * b).sum().to(device) for a, b in zip(left, right, strict=True)]).sum()


def all_finite(norms: list[Tensor]) -> Tensor:
    """Whether all norms are finite, as a tensor, so that asking does not make the device wait."""
    return torch.isfinite(torch.stack(norms)).all() if norms else torch.tensor(True)


def zero_unless_(condition: Tensor, targets: list[Tensor]) -> None:
    """`target ← target if condition else 0`, decided on the device; also where the target is not finite."""
    for target in targets:
        target.masked_fill_(~condition.to(target.device), 0)


def own(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy where it is part of a larger storage that somebody else may write to."""
    is_part = tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size()
    return tensor.detach().clone() if is_part else tensor.detach()


def select_(condition: Tensor, targets: list[Tensor], others: list[Tensor | None]) -> None:
    """`target ← target if condition else other`, decided on the device; None stands for zero."""
    zero_unless_(condition, targets)
    for target, other in zip(targets, others, strict=True):
        if other is not None:
            target.add_(other * ~condition.to(target.device))


def _wide(tensors: list[Tensor]) -> torch.dtype:
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
