"""Perturb along the momentum measured in units of the weights, as adaptive MSAM does."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from vsam.checks import check_not_negative
from vsam.where.adaptive_norm import move_in_units_
from vsam.where.momentum import Momentum

__all__ = ["AdaptiveMomentum"]


class AdaptiveMomentum(Momentum):
    """Take the only gradient at w + e with e = sign · ρ · t² v / (‖t v‖ + 1e-12), v the base optimizer's own momentum.

    `t = |w| + η` elementwise on tensors of two or more dimensions, and 1 on the others.

    Args:
        rho: ρ ≥ 0, the radius.
        sign: −1 moves further along the last update, 1 moves back along it.
        eta: η ≥ 0, lets weights near zero move.
        only: "norm" to perturb the parameters of normalisation layers only.

    Cost: one pass per step; a transient copy of the weights and two transient parameter-sized buffers.

    Example:
        >>> AdaptiveMomentum(3.0)
        AdaptiveMomentum(rho=3.0, sign=-1, eta=0.01)

    Reference: Becker et al., Momentum-SAM: Sharpness Aware Minimization without Computational Overhead, NeurIPS 2025.
    """

    def __init__(
        self, rho: float = 3.0, sign: int = -1, eta: float = 0.01, only: Literal["norm"] | None = None
    ) -> None:
        super().__init__(rho, sign, only)
        self.eta = check_not_negative("eta", eta)

    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """`w ← w + sign · ρ · t² v / (‖t v‖ + 1e-12)`."""
        move_in_units_(weights, gradients, [self.sign * abs(rho) for rho in rhos], self.eta)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return f"{super().describe()}, measured in units of the weights' own size"
