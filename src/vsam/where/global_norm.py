"""Perturb along the gradient, as SAM does."""

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from vsam._step import foreach
from vsam.checks import check_not_negative, check_only
from vsam.parts import Where

__all__ = ["GlobalNorm", "move_", "of_only"]


class GlobalNorm(Where):
    """Take the second gradient at w + e with e = ρ · g / (‖g‖ + 1e-12).

    Args:
        rho: ρ ≥ 0, the radius for parameter groups that set none; the norm is over all groups.
        only: "norm" to perturb the parameters of normalisation layers only (SAM-ON).

    Reduces to: the base optimizer with ρ = 0.
    Cost: one addition to the weights.

    Example:
        >>> GlobalNorm(0.05)
        GlobalNorm(rho=0.05)

    Reference: Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR 2021.
    """

    def __init__(self, rho: float = 0.05, only: Literal["norm"] | None = None) -> None:
        self.rho, self.only = check_not_negative("rho", rho), check_only(only)

    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """`w ← w + ρ · g / (‖g‖ + 1e-12)`."""
        move_(weights, gradients, rhos, norm)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return f"at a distance rho along the gradient{of_only(self.only)}"


def of_only(only: str | None) -> str:
    """Describe the parameters that are perturbed, if not all are."""
    return " of the normalisation layers' parameters" if only == "norm" else ""


def move_(weights: list[Tensor], directions: list[Tensor], rhos: Sequence[float], length: Tensor) -> None:
    """`w ← w + ρ · d / (length + 1e-12)` with one radius per tensor. Nothing moves if the length is not finite."""
    divisor: float | Tensor
    found_inf, divisor, radii = None, float(length) if foreach.is_on_host(length) else length, set(rhos)
    if isinstance(divisor, Tensor):
        found_inf = foreach.is_not_finite(divisor)
    elif not math.isfinite(divisor):
        return
    if len(radii) == 1:
        foreach.add_scaled_(weights, directions, rhos[0] / (divisor + 1e-12), found_inf)
        return
    for rho in radii:
        chosen = [i for i, own in enumerate(rhos) if own == rho]
        targets, others = [weights[i] for i in chosen], [directions[i] for i in chosen]
        foreach.add_scaled_(targets, others, rho / (divisor + 1e-12), found_inf)
