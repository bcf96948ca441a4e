"""Reuse the last PSF with a weight that decays, as vSAM does."""

from collections.abc import Callable

from torch import Tensor

from vsam._step import foreach
from vsam.checks import check_fraction
from vsam.parts import Between

__all__ = ["Decayed"]


class Decayed(Between):
    """Use g + γ^age · PSF at steps without a second gradient.

    Args:
        gamma: γ in [0, 1], how much of the PSF is left after each step.
        floor: the PSF is dropped once its weight has fallen to this or below, in [0, 1]. The paper has no such limit;
            the authors' program stops at γ⁶.

    Reduces to: `Plain` with γ = 0.
    Cost: one parameter-sized buffer and one addition per step.

    Example:
        >>> Decayed(0.5).weight(3)
        0.125

    Reference: Deng et al., Effective Gradient Sample Size via Variation Estimation for Accelerating Sharpness aware
    Minimization, 2024, the rule for iterations that are not sampled.
    """

    def __init__(self, gamma: float = 0.7, floor: float = 0.0) -> None:
        self.gamma = check_fraction("gamma", gamma)
        self.floor = check_fraction("floor", floor)

    @property
    def uses_psf(self) -> bool:  # type: ignore[override]
        """True if there is anything to reuse."""
        return self.gamma > 0

    @property
    def num_buffers(self) -> int:  # type: ignore[override]
        """The PSF, if it is reused."""
        return int(self.gamma > 0)

    def weight(self, age: int) -> float:
        """γ^age, or 0 once it has fallen to the floor."""
        if self.floor == 0:
            return self.gamma**age
        weight = 1.0
        for _ in range(age):  # multiplied as the authors do, which decides the last step when γ^k meets the floor
            if weight <= self.floor:
                return 0.0
            weight *= self.gamma
        return weight

    def at_sample(self, sharp: list[Tensor], psf: list[Tensor], grad_norm: Tensor) -> list[Tensor] | None:
        """Remember the PSF, and step with gs."""
        return psf if self.gamma > 0 else None

    def reuse_(self, gradients: list[Tensor], memory: list[Tensor], age: int, norm: Callable[[], Tensor]) -> None:
        """`g ← g + γ^age · PSF`."""
        weight = self.weight(age)
        if weight > 0:
            foreach.add_(gradients, memory, weight)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        if self.gamma == 0:
            return "uses the plain gradient in between"
        limit = f", until its weight has fallen to {self.floor:.3g}" if self.floor else ""
        return f"adds the last PSF in between, multiplied by {self.gamma:g} per step{limit}"
