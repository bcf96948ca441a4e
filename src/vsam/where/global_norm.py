"""Climb along the gradient, as SAM does."""

from collections.abc import Sequence

from torch import Tensor

from vsam import tensors
from vsam.errors import check_not_negative
from vsam.parts import Where

__all__ = ["GlobalNorm"]


class GlobalNorm(Where):
    """Take the second gradient at w + e with e = ρ · g / (‖g‖ + 1e-12).

    Args:
        rho: ρ ≥ 0, the radius for parameter groups that name none; the norm is over all groups.

    Reduces to: the base optimizer with ρ = 0.
    Cost: one multiplication of the gradients.

    Example:
        >>> GlobalNorm(0.05)
        GlobalNorm(rho=0.05)

    Reference: Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR 2021.
    """

    def __init__(self, rho: float = 0.05) -> None:
        self.rho = check_not_negative("rho", rho)

    def to_offsets_(
        self, gradients: list[Tensor], weights: Sequence[Tensor], rhos: Sequence[float], norms: list[Tensor]
    ) -> None:
        """Scale each gradient to its share of the radius."""
        scale_to_radius_(gradients, rhos, norms)

    def describe(self) -> str:
        """What this part does, as the end of a sentence."""
        return "at a distance rho along the gradient"


def scale_to_radius_(gradients: list[Tensor], rhos: Sequence[float], norms: list[Tensor]) -> None:
    """`g ← ρ · g / (‖g‖ + 1e-12)` with one norm over all tensors and a radius for each."""
    total = tensors.total(norms) + 1e-12
    for rho in dict.fromkeys(rhos):
        tensors.multiply_([g for g, own in zip(gradients, rhos, strict=True) if own == rho], rho / total)
