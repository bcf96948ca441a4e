"""Perturb along the batch-specific part of the gradient, as Friendly SAM does."""

from typing import Literal

import torch
from torch import Tensor

from vsam._step import foreach
from vsam.checks import check_fraction, check_not_negative
from vsam.where.global_norm import GlobalNorm

__all__ = ["Friendly"]


class Friendly(GlobalNorm):
    """Take the second gradient at w + e with e = ρ · d / (‖d‖ + 1e-12) and d = g − σ · m.

    `m ← λ m + (1 − λ) g` is a running average of every step's gradient, and stands for the gradient of all the data. At
    the first step d = g and m = g.

    Args:
        rho: ρ ≥ 0, the radius.
        sigma: σ ≥ 0, how much of the average is subtracted.
        decay: λ in [0, 1), how slowly the average moves.
        only: "norm" to perturb the parameters of normalisation layers only.

    Reduces to: `GlobalNorm` with σ = 0.
    Cost: one parameter-sized buffer, updated at every step, and a transient one at a sample.

    Example:
        >>> Friendly(0.1)
        Friendly(rho=0.1, sigma=1.0, decay=0.9)

    Reference: Li et al., Friendly Sharpness-Aware Minimization, CVPR 2024.
    """

    def __init__(
        self, rho: float = 0.05, sigma: float = 1.0, decay: float = 0.9, only: Literal["norm"] | None = None
    ) -> None:
        super().__init__(rho, only)
        self.sigma = check_not_negative("sigma", sigma)
        self.decay = check_fraction("decay", decay, one=False)

    @property
    def num_buffers(self) -> int:  # type: ignore[override]
        """The average, if there is anything to subtract."""
        return int(self.sigma > 0)

    def directions(self, gradients: list[Tensor], memory: list[Tensor | None]) -> list[Tensor]:
        """`g − σ m`."""
        if not self.sigma:
            return gradients
        known, averages = _known(memory)
        directions, moved = list(gradients), foreach.copies([gradients[i] for i in known])
        foreach.add_(moved, averages, -self.sigma)
        for i, direction in zip(known, moved, strict=True):
            directions[i] = direction
        return directions

    def remember(self, gradients: list[Tensor], memory: list[Tensor | None]) -> list[Tensor] | None:
        """`m ← λ m + (1 − λ) g`."""
        if not self.sigma:
            return None
        known, averages = _known(memory)
        after = foreach.copies(gradients)
        kept = [after[i] for i in known]
        foreach.copy_(kept, averages)
        foreach.lerp_(kept, [gradients[i] for i in known], torch.tensor(1 - self.decay, dtype=torch.float64))
        return after

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        less = f", minus {self.sigma:g} of its running average" if self.sigma else ""
        return f"{super().describe()}{less}"


def _known(memory: list[Tensor | None]) -> tuple[list[int], list[Tensor]]:
    """Return which gradients have an average, and the averages."""
    found = [(i, average) for i, average in enumerate(memory) if average is not None]
    return [i for i, _ in found], [average for _, average in found]
