"""The results of a measurement: numbers with their errors, and whether they converged."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Density", "Eigenvalues", "Estimate", "Lemma1", "Sharpness"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, its error, and whether it converged.

    Args:
        value: the number.
        error: how far it may be off, in the sense of `error_kind`.
        converged: whether the tolerance was reached.
        error_kind: what the error is: a standard error, a residual, a gap.
    """

    value: float
    error: float
    converged: bool
    error_kind: str

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g}{'' if self.converged else ' (not converged)'}"


@dataclass(frozen=True)
class Eigenvalues:
    """The largest eigenvalues of the Hessian, in descending order; a sequence of `Estimate`.

    Args:
        values: the Ritz values.
        errors: their residuals ‖Hv − λv‖: an eigenvalue is at most this far away.
        converged: whether all of them reached the tolerance.
        flags: whether each of them did.
        num_products: how many Hessian-vector products it took.
    """

    values: Tensor
    errors: Tensor
    converged: bool
    flags: tuple[bool, ...]
    num_products: int

    def __len__(self) -> int:
        return len(self.flags)

    def __getitem__(self, index: int) -> Estimate:
        return Estimate(self.values[index].item(), self.errors[index].item(), self.flags[index], "residual")

    def __iter__(self) -> Iterator[Estimate]:
        return (self[i] for i in range(len(self)))

    def __str__(self) -> str:
        return ", ".join(map(str, self))


@dataclass(frozen=True)
class Density:
    """The spectral density of the Hessian as weighted nodes, by stochastic Lanczos quadrature.

    Args:
        nodes: one row per starting vector.
        weights: of the nodes; each row sums to 1.
        converged: whether the first two moments have a standard error of at most a tenth of their size.
    """

    nodes: Tensor
    weights: Tensor
    converged: bool

    def moment(self, order: int) -> Estimate:
        """The mean of the eigenvalues' powers, tr(Hᵏ)/n, with its standard error over the starting vectors."""
        rows = (self.weights * self.nodes**order).sum(1)
        return mean_estimate(rows, 0.1, "starting vectors")

    def at(self, points: Tensor, width: float | None = None) -> Tensor:
        """The density at these points, each node a Gaussian of this width (default: 1 % of the range)."""
        spread = width if width is not None else 0.01 * (self.nodes.max() - self.nodes.min()).item() or 1.0
        distances = (points.double().reshape(-1, 1) - self.nodes.reshape(1, -1)) / spread
        kernels: Tensor = torch.exp(-0.5 * distances.square()) / (spread * (2 * torch.pi) ** 0.5)
        density: Tensor = kernels @ self.weights.reshape(-1) / len(self.nodes)
        return density


@dataclass(frozen=True)
class Lemma1:
    """The paper's Lemma 1 at these weights: ρ‖Hg‖/‖g‖ ≤ ρ Σ δᵢ |cos θᵢ|.

    Args:
        eigenvalues: δᵢ, those whose eigenvectors have a component along the gradient, largest first.
        cosines: |cos θᵢ| between their eigenvectors and the gradient.
        errors: the eigenvalues' residuals.
        psf_norm: ‖∇L(w + ρ g/‖g‖) − ∇L(w)‖, the L2-PSF at SAM's perturbation.
        first_order: ρ‖Hg‖/‖g‖, what the lemma bounds.
        bound: ρ Σ |δᵢ| |cos θᵢ|. It has converged only if all these eigenvectors were found: with fewer the sum is
            not a bound, only a lower estimate of it.
        tightness: first_order / bound, 1 if the bound is reached; NaN if both are zero.
        is_positive_definite: whether all these eigenvalues are positive, as the lemma assumes; with |δᵢ| it need not.
    """

    eigenvalues: Tensor
    cosines: Tensor
    errors: Tensor
    psf_norm: float
    first_order: float
    bound: Estimate
    tightness: float
    is_positive_definite: bool


@dataclass(frozen=True)
class Sharpness:
    """How sharp the loss is around the weights. What was not requested is None.

    Args:
        loss: the mean loss at the weights.
        gradient_norm: ‖g‖ there.
        top_eigenvalues: of the Hessian, largest first.
        smallest_eigenvalue: the other end of the spectrum, from the same Krylov space.
        trace: of the Hessian.
        ascent: L(w + ρ g/‖g‖) − L(w), with the gradient over all batches (m = all samples).
        batch_ascent: the same with each batch's own gradient and loss, averaged, which is what SAM minimises (m = the
            batch size).
        worst: the largest rise found in the ball of radius ρ; a lower bound.
        random: the mean rise over random directions at a distance ρ.
        density: the spectral density.
        lemma1: the quantities of the paper's Lemma 1.
        layers: the same per layer or group, if requested.
        rho, mode, adaptive, num_parameters, num_samples, num_batches: what was measured. `mode` says how BatchNorm and
            dropout behaved, `adaptive` whether distances and curvature are in units of the weights (ASAM).
    """

    loss: float
    gradient_norm: float
    rho: float
    mode: str
    adaptive: bool
    num_parameters: int
    num_samples: int
    num_batches: int
    top_eigenvalues: Eigenvalues | None = None
    smallest_eigenvalue: Estimate | None = None
    trace: Estimate | None = None
    ascent: Estimate | None = None
    batch_ascent: Estimate | None = None
    worst: Estimate | None = None
    random: Estimate | None = None
    density: Density | None = None
    lemma1: Lemma1 | None = None
    layers: "dict[str, Sharpness] | None" = None

    @property
    def m(self) -> float:
        """The mean batch size, the m of `batch_ascent`."""
        return self.num_samples / self.num_batches

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers, lists and dicts, for JSON."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def __str__(self) -> str:
        norms = "BatchNorm and dropout as in " + {"eval": "evaluation", "train": "training"}.get(self.mode, "the model")
        rows = [
            f"{self.num_parameters:,} parameters, {self.num_samples:,} samples in {self.num_batches} batches; {norms}",
            f"loss {self.loss:.4g}, gradient norm {self.gradient_norm:.4g}, rho {self.rho:g}"
            + (", in units of the weights (adaptive)" if self.adaptive else ""),
        ]
        for name in _SHOWN:
            found = getattr(self, name)
            if found is not None:
                label = name.replace("_", " ") + (f" (m = {self.m:g})" if name == "batch_ascent" else "")
                rows.append(f"{label:24} {found}")
        return "\n".join(rows)


_SHOWN = ("top_eigenvalues", "smallest_eigenvalue", "trace", "ascent", "batch_ascent", "worst", "random")


def mean_estimate(numbers: Tensor, tolerance: float, of_what: str) -> Estimate:
    """The mean of independent numbers with its standard error; converged if that is small relative to the mean."""
    mean, count = numbers.mean().item(), len(numbers)
    error = (numbers.std() / count**0.5).item() if count > 1 else float("inf")
    kind = f"standard error over {count} {of_what}"
    return Estimate(mean, error, error <= tolerance * abs(mean), kind)


def _plain(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return {name: _plain(value) for name, value in thing.items()}
    return [_plain(value) for value in thing] if isinstance(thing, list | tuple) else thing
