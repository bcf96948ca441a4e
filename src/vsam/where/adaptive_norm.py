"""Move along the gradient measured in units of the weights, as ASAM does."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from vsam._step import foreach
from vsam.checks import check_not_negative, check_only
from vsam.parts import Where
from vsam.where.global_norm import move_, of_only

__all__ = ["AdaptiveNorm", "move_in_units_"]


class AdaptiveNorm(Where):
    """Take the second gradient at w + e with e = ρ · t² g / (‖t g‖ + 1e-12).

    `t = |w| + η` elementwise on tensors of two or more dimensions, and 1 on the others.

    Args:
        rho: ρ ≥ 0, about ten times SAM's.
        eta: η ≥ 0, lets weights near zero move.
        only: "norm" to perturb the parameters of normalisation layers only.

    Cost: two transient parameter-sized buffers.

    Example:
        >>> AdaptiveNorm(rho=0.5)
        AdaptiveNorm(rho=0.5, eta=0.01)

    Reference: Kwon et al., ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural
    Networks, ICML 2021.
    """

    def __init__(self, rho: float = 0.5, eta: float = 0.01, only: Literal["norm"] | None = None) -> None:
        self.rho, self.only = check_not_negative("rho", rho), check_only(only)
        self.eta = check_not_negative("eta", eta)

    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """`w ← w + ρ · t² g / (‖t g‖ + 1e-12)`."""
        move_in_units_(weights, gradients, rhos, self.eta)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return f"at a distance rho along the gradient{of_only(self.only)}, measured in units of the weights' own size"


def move_in_units_(weights: list[Tensor], directions: list[Tensor], rhos: Sequence[float], eta: float) -> None:
    """`w ← w + ρ · t² d / (‖t d‖ + 1e-12)` with `t = |w| + η` on tensors of two or more dimensions, 1 on the others."""
    scaled = [i for i, weight in enumerate(weights) if weight.ndim > 1]
    units, products = (foreach.copies([tensors[i] for i in scaled]) for tensors in (weights, directions))
    foreach.absolute_(units, eta)
    foreach.multiply_(products, units)
    moved = list(directions)
    for i, product in zip(scaled, products, strict=True):
        moved[i] = product
    length = foreach.norm(moved)
    foreach.multiply_(products, units)
    move_(weights, moved, rhos, length)
