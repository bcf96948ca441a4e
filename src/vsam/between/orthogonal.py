"""Reuse the part of the sharp gradient that is orthogonal to the plain one, as LookSAM does."""

from collections.abc import Callable

import torch
from torch import Tensor

from vsam._step import foreach
from vsam.checks import check_not_negative
from vsam.parts import Between

__all__ = ["Orthogonal"]


class Orthogonal(Between):
    """Use g + λ · (‖g‖ / ‖gv‖) · gv at steps without a second gradient, with gv = gs − (⟨gs, g⟩ / ‖g‖²) g.

    Norms and projection are over all parameters together.

    Args:
        scale: λ ≥ 0. 0.7 was published for the Vision Transformer. On CIFAR's CNNs 0.1 is about right.

    Reduces to: `Plain` with λ = 0.
    Cost: one parameter-sized buffer (gv/‖gv‖), a projection at a sample, an addition in between.

    Example:
        >>> Orthogonal(scale=0.1)
        Orthogonal(scale=0.1)

    Reference: Liu et al., Towards Efficient and Scalable Sharpness-Aware Minimization, CVPR 2022.
    """

    def __init__(self, scale: float = 0.1) -> None:
        self.scale = check_not_negative("scale", scale)

    @property
    def uses_psf(self) -> bool:  # type: ignore[override]
        """True if there is anything to reuse."""
        return self.scale > 0

    @property
    def num_buffers(self) -> int:  # type: ignore[override]
        """gv/‖gv‖, if it is reused."""
        return int(self.scale > 0)

    def at_sample(self, sharp: list[Tensor], psf: list[Tensor], grad_norm: Tensor) -> list[Tensor] | None:
        """Remember the direction gv/‖gv‖, written over the PSF, zero where gv is rounding noise. Step with gs."""
        if not self.scale:
            return None
        # gv is also the PSF's part orthogonal to g, PSF − c·g with c = ⟨PSF, g⟩/‖g‖² and g = gs − PSF.
        along = foreach.dot(psf, sharp) - foreach.dot(psf, psf)
        c = (along / grad_norm / grad_norm).masked_fill(grad_norm == 0, 0.0)
        foreach.lerp_(psf, sharp, -c)
        length, noise = foreach.norm(psf), 1e-6 * foreach.norm(sharp)
        if length.dtype == torch.float64:
            noise = 1e-6 * noise
        foreach.multiply_(psf, (1 / length).masked_fill(length <= noise, 0.0))
        return psf

    def reuse_(self, gradients: list[Tensor], memory: list[Tensor], age: int, norm: Callable[[], Tensor]) -> None:
        """`g ← g + λ · ‖g‖ · gv/‖gv‖`."""
        added = foreach.copies(memory)
        foreach.multiply_(added, self.scale * norm())
        foreach.add_(gradients, added)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        if self.scale == 0:
            return "uses the plain gradient in between"
        return f"adds {self.scale:g} of the last sharp gradient's orthogonal part in between, at the gradient's length"
