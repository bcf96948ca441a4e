"""Reuse the part of the sharp gradient that is orthogonal to the plain one, as LookSAM does."""

import torch
from torch import Tensor

from vsam import tensors
from vsam.errors import check_not_negative
from vsam.parts import Between

__all__ = ["Orthogonal"]


class Orthogonal(Between):
    """Use g + λ · (‖g‖ / ‖gv‖) · gv at steps without a second gradient, with gv = gs − (⟨gs, g⟩ / ‖g‖²) g.

    Norms and projection are over all parameters together.

    Args:
        scale: λ ≥ 0. 0.7 was published for vision transformers; on CIFAR's CNNs 0.1 is about right.

    Reduces to: `Plain` with λ = 0.
    Cost: one parameter-sized buffer (gv/‖gv‖), a projection at a sample, an addition in between.

    Example:
        >>> Orthogonal(scale=0.1)
        Orthogonal(scale=0.1)

    Reference: Liu et al., Towards Efficient and Scalable Sharpness-Aware Minimization, CVPR 2022.
    """

    uses_norm = True

    def __init__(self, scale: float = 0.1) -> None:
        self.scale = check_not_negative("scale", scale)

    @property
    def keeps_memory(self) -> bool:  # type: ignore[override]
        """Whether there is anything to reuse."""
        return self.scale > 0

    def remember(self, psf: list[Tensor], sharp: list[Tensor], grad_norm: Tensor) -> None:
        """The direction gv/‖gv‖, written over the PSF; zero where gv is rounding noise."""
        # gv is also the PSF's part orthogonal to g, PSF − c·g with c = ⟨PSF, g⟩/‖g‖² and g = gs − PSF.
        along = tensors.dot(psf, sharp) - tensors.dot(psf, psf)
        c = (along / grad_norm / grad_norm).masked_fill(grad_norm == 0, 0.0)
        tensors.lerp_(psf, sharp, -c)
        length, noise = tensors.norm(psf), 1e-6 * tensors.norm(sharp)
        if length.dtype == torch.float64:
            noise = 1e-6 * noise
        tensors.multiply_(psf, (1 / length).masked_fill(length <= noise, 0.0))

    def reuse_(self, gradients: list[Tensor], memory: list[Tensor], age: int, grad_norm: Tensor) -> None:
        """`g ← g + λ · ‖g‖ · gv/‖gv‖`."""
        added = tensors.copies(memory)
        tensors.multiply_(added, self.scale * grad_norm)
        tensors.add_(gradients, added)

    def describe(self) -> str:
        """What this part does, as the end of a sentence."""
        if self.scale == 0:
            return "uses the plain gradient in between"
        return f"adds {self.scale:g} of the last sharp gradient's orthogonal part in between, at the gradient's length"
