"""The second gradient on the samples whose loss rose most, as in ESAM's sharpness-sensitive data selection."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from vsam.rng import RngState

__all__ = ["Losses", "Selection"]


class Losses(Protocol):
    """The per-sample losses of the batch at the current weights, or of the samples `keep`; without `backward`."""

    def __call__(self, keep: Tensor | None = None) -> Tensor:
        """A vector with one loss per sample."""


class Selection:
    """A closure made of per-sample losses: all samples in the first pass, those whose loss rose most in the second.

    `d = losses at w + e − losses at w`; the second gradient is that of the mean loss over the `max(1, int(γB))` samples
    with the largest `d`, in the order of the batch.

    Args:
        losses: as `Losses` says.
        gamma: γ in (0, 1], the fraction of samples kept. With 1 all are, and no losses are compared.
        scale: applied to the loss before `backward`.
    """

    def __init__(self, losses: Losses, gamma: float, scale: Callable[[Tensor], Tensor]) -> None:
        self._losses, self._gamma, self._scale = losses, gamma, scale
        self._before: Tensor | None = None

    def __call__(self) -> Tensor:
        """Run one pass; the second call is at the perturbed weights."""
        if self._before is None:
            losses = _checked(self._losses())
            self._before = losses.detach()
        else:
            kept = self._kept(self._before)
            losses = _checked(self._losses(kept), len(kept))
        loss = losses.mean()
        self._scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss

    @torch.no_grad()
    def _kept(self, before: Tensor) -> Tensor:
        count = max(1, int(self._gamma * len(before)))
        if count == len(before):
            return torch.arange(count, device=before.device)
        rng = RngState({before.device})
        increase = _checked(self._losses(), len(before)) - before
        rng.restore()
        return increase.topk(count).indices.sort().values


def _checked(losses: object, count: int | None = None) -> Tensor:
    if not isinstance(losses, Tensor) or losses.ndim != 1 or len(losses) == 0:
        got = f"a tensor of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"losses must return a vector with one loss per sample, got {got}. "
            "Use a criterion with reduction='none', and do not call backward."
        )
    if count is not None and len(losses) != count:
        raise ValueError(
            f"losses must return one loss for each of the {count} requested samples, got {len(losses)}: "
            "losses(keep) returns those of the samples keep, losses() those of the whole batch."
        )
    return losses
