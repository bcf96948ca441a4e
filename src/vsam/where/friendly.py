"""Perturb along the batch-specific part of the gradient, as Friendly SAM does."""

from typing import Literal

import torch
from torch import Tensor

from vsam import tensors
from vsam.errors import check_fraction, check_not_negative
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
    def keeps_memory(self) -> bool:  # type: ignore[override]
        """Whether there is anything to subtract."""
        return self.sigma > 0

    def directions(self, gradients: list[Tensor], memory: list[Tensor]) -> list[Tensor]:
        """`g − σ m`."""
        directions = tensors.copies(gradients)
        tensors.add_(directions, memory, -self.sigma)
        return directions

    def follow_(self, memory: list[Tensor], gradients: list[Tensor]) -> None:
        """`m ← λ m + (1 − λ) g`."""
        tensors.lerp_(memory, gradients, torch.tensor(1 - self.decay, dtype=torch.float64))

    def describe(self) -> str:
        """What this part does, as the end of a sentence."""
        less = f", minus {self.sigma:g} of its running average" if self.sigma else ""
        return f"{super().describe()}{less}"
