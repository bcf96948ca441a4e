"""ESAM, which takes the second gradient on the samples whose loss rose most."""

from collections.abc import Callable
from typing import Any, Protocol, Unpack

import torch
from torch import Tensor, nn

from vsam._step.misuse import refuse_empty_step
from vsam._step.replay import RngState
from vsam.checks import check_fraction
from vsam.optimizer import Bases, Options, SharpnessAware
from vsam.registry import describe
from vsam.where import RandomSubset


class Losses(Protocol):
    """The per-sample losses of the batch at the current weights, or of the samples `keep`, without `backward`."""

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
        self._after: Tensor | None = None

    def __call__(self) -> Tensor:
        """Run one pass, and return the mean loss of all samples. The second call is at the perturbed weights."""
        if self._before is None:
            losses = _checked(self._losses())
            self._before = losses.detach()
        else:
            kept = self._kept(self._before)
            losses = _checked(self._losses(kept), len(kept))
        loss = losses.mean()
        self._scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss if self._after is None else self._after

    @torch.no_grad()
    def _kept(self, before: Tensor) -> Tensor:
        count = max(1, int(self._gamma * len(before)))
        if count == len(before):
            return torch.arange(count, device=before.device)
        rng = RngState({before.device})
        losses = _checked(self._losses(), len(before))
        rng.restore()
        self._after = losses.mean()
        return (losses - before).topk(count).indices.sort().values


class ESAM(SharpnessAware):
    """Efficient SAM: perturb a random subset of tensors, take the second gradient where per-sample losses rose most.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, the radius.
        beta: β in (0, 1], the fraction of tensors that are perturbed (SWP); 1 turns that off.
        gamma: γ in (0, 1], the fraction of samples in the second gradient (SDS); 1 turns that off.
        seed: for the private generator that draws the tensors.

    Reduces to: `SAM` with β = γ = 1.
    Cost: two passes per step, the second on a fraction γ of the batch, and a forward pass to choose it. Dropout masks
    and batch statistics of the subset are not those of the batch.

    Example:
        >>> def losses(keep=None):
        ...     x, y = (inputs, targets) if keep is None else (inputs[keep], targets[keep])
        ...     return torch.nn.functional.cross_entropy(model(x), y, reduction="none")
        >>> loss = optimizer.step(losses)

    Reference: Du et al., Efficient Sharpness-aware Minimization for Improved Training of Neural Networks, ICLR 2022.
    """

    _settings = ("gamma",)

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        rho: float = 0.05,
        beta: float = 0.6,
        gamma: float = 0.5,
        seed: int = 0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=RandomSubset(rho, beta, seed))
        self.gamma = check_fraction("gamma", gamma, zero=False)

    def _as_closure(self, losses: Losses, scaler: Any) -> Selection:
        """Return a closure of both passes made of per-sample losses, which are what `step` takes here.

        `losses(keep=None)` returns the vector of per-sample losses of the batch, or of the indices `keep`, and does not
        call `backward`. It is called three times: with gradient, without, and on the subset.
        """
        if not callable(losses):
            raise ValueError(f"losses must be a function, got {type(losses).__name__}: see the example of vsam.ESAM.")
        self._refresh()
        is_moving = any(self._gradients.radii(self.where.rho))
        # If nothing moves, no sample's loss rises: keep all of them, as the base optimizer does.
        scale = (lambda loss: loss) if scaler is None else scaler.scale
        return Selection(losses, self.gamma if is_moving else 1.0, scale)

    def _finish(self, scaler: Any) -> None:
        refuse_empty_step(
            "ESAM needs per-sample losses: pass step() a function losses(keep=None) that returns those of the batch, "
            "or of the indices keep, and does not call backward."
        )

    def perturb(self, *, scaler: Any = None) -> bool:
        """Not supported: choosing samples needs their losses, which only `step(losses)` gets."""
        raise RuntimeError("ESAM chooses samples by their losses, so it has no perturb(): call step(losses).")

    def describe(self) -> str:
        """In plain words: what this method does, what it costs, and where it was published."""
        return describe(self.when, self.where, self.between, self.base, self.gamma)


def _checked(losses: object, count: int | None = None) -> Tensor:
    if not isinstance(losses, Tensor) or losses.ndim != 1 or len(losses) == 0:
        got = f"a tensor of shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(f"losses must return a vector with one loss per sample, got {got}: use reduction='none'.")
    if count is not None and len(losses) != count:
        raise ValueError(f"losses must return one loss for each of the {count} requested samples, got {len(losses)}.")
    return losses
