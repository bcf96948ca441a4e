"""Perturb along the gradient of a part of the batch, so that SAM at every step costs little more than the base."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

from vsam.checks import check_fraction, check_not_negative, check_only
from vsam.parts import KnowsBefore
from vsam.where.global_norm import move_, of_only

__all__ = ["PartOfBatch"]


class PartOfBatch(KnowsBefore):
    """Take the gradient of the whole batch at w + e with e = ρ · g_S / (‖g_S‖ + 1e-12), g_S of a part S of the batch.

    The closure takes the fraction as its argument: `closure(share)` runs on that part of the batch at w, then
    `closure()` on the whole batch at w + e. Statistics, generators and the loss are those of the whole batch's pass.

    Args:
        rho: ρ ≥ 0, the radius. The smaller the part, the larger the best radius: a direction from fewer samples says
            less about the others.
        share: the fraction of the batch, in (0, 1]. It should hold whole samples of several classes: 3 of 64 were
            enough for small CNNs.
        only: "norm" to perturb the parameters of normalisation layers only.

    Reduces to: the base optimizer with ρ = 0; `GlobalNorm` with share = 1, except for the statistics and the loss.
    Cost: 1 + share passes per step; a transient copy of the weights.

    Example:
        >>> PartOfBatch(0.1, share=0.2)
        PartOfBatch(rho=0.1, share=0.2)

    Reference: Brock et al., High-Performance Large-Scale Image Recognition Without Normalization, ICML 2021, who take
    a fifth of the batch.
    """

    def __init__(self, rho: float = 0.05, share: float = 0.2, only: Literal["norm"] | None = None) -> None:
        self.rho, self.only = check_not_negative("rho", rho), check_only(only)
        self.share = check_fraction("share", share, zero=False)

    def direction(self, state: Mapping[str, Any], gradient: Tensor | None) -> Tensor | None:
        """g_S."""
        return gradient

    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """`w ← w + ρ · g_S / (‖g_S‖ + 1e-12)`."""
        move_(weights, gradients, rhos, norm)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return f"at a distance rho along the gradient of {self.share:.3g} of the batch{of_only(self.only)}"
