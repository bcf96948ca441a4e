"""Weigh the sharpness separately at a sample, as WSAM does."""

from torch import Tensor

from vsam._step import foreach
from vsam.between.plain import Plain
from vsam.checks import check_fraction

__all__ = ["Weighted"]


class Weighted(Plain):
    """Use g + (γ / (1 − γ)) · PSF at a sample, and g in between.

    Args:
        gamma: γ in [0, 1), the weight of the sharpness against that of the plain loss.

    Reduces to: `Plain` with γ = ½; the base optimizer with γ = 0.
    Cost: a transient copy of the gradient and an addition at a sample.

    The published method steps the base optimizer on g and then subtracts lr · (γ / (1 − γ)) · PSF from the weights
    ("decoupled"). This is the coupled form: the base optimizer, its momentum included, gets the sum.

    Example:
        >>> Weighted()
        Weighted(gamma=0.9)

    Reference: Yue et al., Sharpness-Aware Minimization Revisited: Weighted Sharpness as a Regularization Term, KDD
    2023.
    """

    def __init__(self, gamma: float = 0.9) -> None:
        self.gamma = check_fraction("gamma", gamma, one=False)

    @property
    def uses_psf(self) -> bool:  # type: ignore[override]
        """True if the sum differs from gs."""
        return self.gamma != 0.5

    def at_sample(self, sharp: list[Tensor], psf: list[Tensor], grad_norm: Tensor) -> None:
        """`gs ← gs + (γ / (1 − γ) − 1) · PSF`, which is the same since g = gs − PSF."""
        foreach.add_(sharp, psf, self.gamma / (1 - self.gamma) - 1)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        weight = self.gamma / (1 - self.gamma)
        added = f"weighs the PSF by {weight:.3g} at a sample, and " if self.uses_psf else ""
        return f"{added}{super().describe()}"
