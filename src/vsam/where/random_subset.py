"""Perturb along a random part of the gradient, as ESAM's stochastic weight perturbation does."""

import random
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from vsam._step import foreach
from vsam.checks import check_count, check_fraction, check_not_negative, check_only
from vsam.parts import Where
from vsam.where.global_norm import move_, of_only

__all__ = ["RandomSubset"]


class RandomSubset(Where):
    """Take the second gradient at w + e with e = ρ / (‖g_kept‖ + 1e-12) / β · g_kept, and zero elsewhere.

    Each parameter tensor is kept with probability β, but at least one is. The update uses all foreach.

    Args:
        rho: ρ ≥ 0, the radius.
        beta: β in (0, 1], the fraction of tensors that are perturbed.
        seed: for the private generator that draws.
        only: "norm" to draw from the parameters of normalisation layers only.

    Reduces to: `GlobalNorm` with β = 1.
    Cost: that of `GlobalNorm`. It saves almost nothing, since nearly every tensor's gradient is needed anyway.

    Example:
        >>> RandomSubset(0.05, beta=0.5)
        RandomSubset(rho=0.05, beta=0.5, seed=0)

    Reference: Du et al., Efficient Sharpness-aware Minimization for Improved Training of Neural Networks, ICLR 2022.
    """

    def __init__(
        self, rho: float = 0.05, beta: float = 0.6, seed: int = 0, only: Literal["norm"] | None = None
    ) -> None:
        self.rho, self.only = check_not_negative("rho", rho), check_only(only)
        self.beta = check_fraction("beta", beta, zero=False)
        self.seed = check_count("seed", seed, least=0, why="seeds are not negative")
        self.generator: random.Random = random.Random(self.seed)

    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """Draw the kept tensors and move those."""
        kept = [i for i in range(len(weights)) if self.generator.random() < self.beta]
        kept = kept or [self.generator.randrange(len(weights))]
        chosen = [gradients[i] for i in kept]
        move_([weights[i] for i in kept], chosen, [rhos[i] / self.beta for i in kept], foreach.norm(chosen))

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        subset = f" of a random {self.beta:.0%} of the tensors" if self.beta < 1 else ""
        return f"at a distance rho along the gradient{of_only(self.only)}{subset}"
