"""Also close the gap between the perturbed and the plain loss, as GSAM does."""

from torch import Tensor

from vsam._step import foreach
from vsam.between.plain import Plain
from vsam.checks import check_not_negative

__all__ = ["SurrogateGap"]


class SurrogateGap(Plain):
    """Use gs − α · (g − (⟨g, gs⟩ / ‖gs‖²) gs) at a sample, and g in between.

    The subtracted term is the part of the plain gradient orthogonal to the sharp one: it raises the plain loss without
    changing the perturbed one, so that the gap between the two, which measures sharpness, shrinks.

    Args:
        alpha: α ≥ 0, the weight of that part.

    Reduces to: `Plain` with α = 0.
    Cost: a transient copy of the gradient, a projection and an addition at a sample.

    Example:
        >>> SurrogateGap()
        SurrogateGap(alpha=0.4)

    Reference: Zhuang et al., Surrogate Gap Minimization Improves Sharpness-Aware Training, ICLR 2022.
    """

    def __init__(self, alpha: float = 0.4) -> None:
        self.alpha = check_not_negative("alpha", alpha)

    @property
    def uses_psf(self) -> bool:  # type: ignore[override]
        """True if there is anything to subtract."""
        return self.alpha > 0

    def at_sample(self, sharp: list[Tensor], psf: list[Tensor], grad_norm: Tensor) -> None:
        """`gs ← gs + α · (PSF − c · gs)` with c = ⟨PSF, gs⟩ / ‖gs‖², which is the same since g = gs − PSF."""
        length = foreach.norm(sharp)
        c = (foreach.dot(psf, sharp) / length / length).masked_fill(length == 0, 0.0)
        foreach.multiply_(sharp, 1 - self.alpha * c)
        foreach.add_(sharp, psf, self.alpha)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        added = f"subtracts {self.alpha:g} of the plain gradient's part orthogonal to the sharp one at a sample, and "
        return f"{added if self.alpha else ''}{super().describe()}"
