"""A smooth, bounded, non-convex problem on real images, on which every assumption of the paper's Lemma 2 holds."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from vsam.lab.data.fashion import load_fashion_mini

__all__ = ["SmoothProblem"]

_POOLED = 4


@dataclass(frozen=True, eq=False)
class SmoothProblem:
    """Softmax regression with the Brier score: L(w) = mean over images of ‖softmax(w·x) − y‖², in float64.

    With ‖x‖ = 1 it is bounded, 0 ≤ L ≤ 2; its gradients are, ‖∇L‖ ≤ √2, because ‖softmax′‖ ≤ 1/2 and ‖p − y‖ ≤ √2; and
    so are its second derivatives, because those of softmax are. Unlike that of cross-entropy, the loss is not convex.

    Args:
        features: one row of length 1 per image.
        targets: one row per image, 1 at its class and 0 elsewhere.
    """

    features: Tensor
    targets: Tensor

    GRADIENT_BOUND = math.sqrt(2)
    """G₁ of the lemma, for any w and any batch."""

    @classmethod
    def from_images(cls, count: int) -> Self:
        """The problem on the first images that ship with the package, averaged to 7 × 7 pixels.

        Args:
            count: number of images, from 1 to 4,000.
        """
        dataset = load_fashion_mini()
        images = functional.avg_pool2d(dataset.train_images[:count].double() / 255, _POOLED).flatten(1)
        centred = functional.normalize(images - images.mean(0), dim=1)
        features = torch.cat([centred, torch.ones(len(centred), 1, dtype=torch.float64)], dim=1)
        targets = functional.one_hot(dataset.train_labels[:count], dataset.num_classes).double()
        return cls(functional.normalize(features, dim=1), targets)

    def begin(self, generator: torch.Generator) -> torch.nn.Parameter:
        """Random weights near 0."""
        shape = self.features.shape[1], self.targets.shape[1]
        return torch.nn.Parameter(0.1 * torch.randn(shape, generator=generator, dtype=torch.float64))

    def draw(self, size: int, generator: torch.Generator) -> Self:
        """The problem on a batch, drawn with replacement, so that its gradient is unbiased."""
        chosen = torch.randint(len(self.features), (size,), generator=generator)
        return type(self)(self.features[chosen], self.targets[chosen])

    def loss(self, weights: Tensor) -> Tensor:
        """L(w)."""
        return (torch.softmax(self.features @ weights, dim=1) - self.targets).square().sum(1).mean()

    def gradients(self, weights: Tensor, rho: float) -> tuple[Tensor, Tensor]:
        """∇L(w) and ∇L(w + ρ ∇L(w)/‖∇L(w)‖); the second minus the first is the PSF."""
        plain = self._gradient(weights.detach())
        return plain, self._gradient(weights.detach() + rho * plain / (plain.norm() + 1e-12))

    def _gradient(self, weights: Tensor) -> Tensor:
        at = weights.clone().requires_grad_()
        return torch.autograd.grad(self.loss(at), at)[0]
