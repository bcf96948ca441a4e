"""The results of a measurement: numbers with their errors, and whether they converged."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its error.

    Args:
        value: the number.
        error: how far it may be off, in the sense of `error_kind`.
        converged: whether the tolerance was reached.
        error_kind: a standard error, a residual or a gap.
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
    """The largest eigenvalues of the Hessian, in descending order, as a sequence of `Estimate`.

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
        """Return the density at these points, with each node a Gaussian of this width (default: 1 % of the range)."""
        spread = width if width is not None else 0.01 * (self.nodes.max() - self.nodes.min()).item() or 1.0
        distances = (points.double().reshape(-1, 1) - self.nodes.reshape(1, -1)) / spread
        kernels: Tensor = torch.exp(-0.5 * distances.square()) / (spread * (2 * torch.pi) ** 0.5)
        return kernels @ self.weights.reshape(-1) / len(self.nodes)


@dataclass(frozen=True)
class Sharpness:
    """The sharpness of the loss around the weights. Fields that were not requested are None.

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
    layers: "dict[str, Sharpness] | None" = None

    @property
    def m(self) -> float:
        """The mean batch size, the m of `batch_ascent`."""
        return self.num_samples / self.num_batches

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, lists and dicts, for JSON."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def __str__(self) -> str:
        norms = "BatchNorm and dropout as in " + {"eval": "evaluation", "train": "training"}.get(self.mode, "the model")
        unit = ", in units of the weights (adaptive)" if self.adaptive else ""
        rows = [
            f"{self.num_parameters:,} parameters, {self.num_samples:,} samples in {self.num_batches} batches; {norms}",
            f"loss {self.loss:.4g}, gradient norm {self.gradient_norm:.4g}, rho {self.rho:g}{unit}",
        ]
        for name in ("top_eigenvalues", "smallest_eigenvalue", "trace", "ascent", "batch_ascent", "worst", "random"):
            if (found := getattr(self, name)) is not None:
                label = name.replace("_", " ") + (f" (m = {self.m:g})" if name == "batch_ascent" else "")
                rows.append(f"{label:24} {found}")
        return "\n".join(rows)


def mean_estimate(numbers: Tensor, tolerance: float, of_what: str) -> Estimate:
    """Return the mean of independent numbers, converged if its standard error is small relative to it."""
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
