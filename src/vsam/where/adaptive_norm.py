"""Climb along the gradient measured in units of the weights, as ASAM does."""

from collections.abc import Sequence

from torch import Tensor

from vsam import tensors
from vsam.errors import check_not_negative
from vsam.parts import Where
from vsam.where.global_norm import scale_to_radius_

__all__ = ["AdaptiveNorm"]


class AdaptiveNorm(Where):
    """Take the second gradient at w + e with e = ρ · t² g / (‖t g‖ + 1e-12).

    `t = |w| + η` elementwise on tensors of two or more dimensions, and 1 on the others.

    Args:
        rho: ρ ≥ 0, about ten times SAM's.
        eta: η ≥ 0, keeps weights near zero movable.

    Cost: a transient buffer of the size of the parameters.

    Example:
        >>> AdaptiveNorm(rho=0.5)
        AdaptiveNorm(rho=0.5, eta=0.01)

    Reference: Kwon et al., ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural
    Networks, ICML 2021.
    """

    def __init__(self, rho: float = 0.5, eta: float = 0.01) -> None:
        self.rho = check_not_negative("rho", rho)
        self.eta = check_not_negative("eta", eta)

    def to_offsets_(
        self, gradients: list[Tensor], weights: Sequence[Tensor], rhos: Sequence[float], norms: list[Tensor]
    ) -> None:
        """Scale by t, to the radius, and by t again."""
        pairs = [(g, w) for g, w in zip(gradients, weights, strict=True) if w.ndim > 1]
        scaled, units = [g for g, _ in pairs], tensors.absolute([w for _, w in pairs], self.eta)
        tensors.multiply_(scaled, units)
        scale_to_radius_(gradients, rhos, tensors.norms(gradients))
        tensors.multiply_(scaled, units)

    def describe(self) -> str:
        """What this part does, as the end of a sentence."""
        return "at a distance rho along the gradient, measured in units of the weights' own size"
