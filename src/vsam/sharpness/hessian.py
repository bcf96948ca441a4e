"""The Hessian's spectrum from its products with vectors: Lanczos, trace, density."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vsam.sharpness.objective import Objective
from vsam.sharpness.results import Density, Eigenvalues, Estimate, mean_estimate

__all__ = ["Krylov", "density", "eigenvalues", "lanczos", "smallest", "trace"]

Report = Callable[[int, int], object]

_ASYMMETRY = 0.01
"""As a fraction of the largest product; beyond rounding in single precision."""


@dataclass
class Krylov:
    """An orthonormal basis Q and the tridiagonal matrix T = QᵀHQ.

    Args:
        basis: the rows of Qᵀ.
        diagonal: of T.
        beside: the numbers next to T's diagonal, and the norm of the rest at the end.
        is_complete: whether H maps the space into itself, so that all of T's eigenvalues are the Hessian's.
        rounding: the rounding error of the products; no residual is smaller.
    """

    basis: list[Tensor]
    diagonal: list[float]
    beside: list[float]
    is_complete: bool = False
    rounding: float = 0.0

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """The eigenvalues of T, largest first, their eigenvectors as columns, and the residuals."""
        matrix = torch.diag(torch.tensor(self.diagonal, dtype=torch.float64))
        inner = torch.tensor(self.beside[:-1], dtype=torch.float64)
        matrix = matrix + torch.diag(inner, 1) + torch.diag(inner, -1)
        values, vectors = torch.linalg.eigh(matrix)
        values, vectors = values.flip(0), vectors.flip(1)
        return values, vectors, (self.beside[-1] * vectors[-1].abs()).clamp_min(self.rounding)

    def are_found(self, tolerance: float) -> Tensor:
        """For each of T's eigenvalues, whether its residual is within the tolerance, or only rounding."""
        values, _, residuals = self.ritz()
        return residuals <= (tolerance * values.abs()).clamp_min(self.rounding)

    def vector(self, column: Tensor) -> Tensor:
        """A vector of the space, from its coordinates."""
        result = torch.zeros_like(self.basis[0])
        for coordinate, own in zip(column.tolist(), self.basis, strict=True):
            result.add_(own, alpha=coordinate)
        return result

    def without(self, vector: Tensor) -> Tensor:
        """The part of a vector orthogonal to the space. Projecting twice is enough against rounding."""
        rest = vector.clone()
        for _ in range(2):
            for own in self.basis:
                rest.sub_(own, alpha=torch.dot(own, rest).item())
        return rest


def lanczos(
    product: Callable[[Tensor], Tensor],
    start: Tensor,
    max_iterations: int,
    is_enough: Callable[[Krylov], bool] = lambda krylov: False,
    fresh: Callable[[], Tensor] | None = None,
) -> Krylov:
    """The Lanczos iteration with full re-orthogonalisation.

    Args:
        product: the Hessian times a vector.
        start: the first vector, of any length.
        max_iterations: the largest number of products.
        is_enough: called after each product; True stops.
        fresh: returns a new vector when the space is invariant but not everything, as with equal eigenvalues; None
            stops there.

    Cost: one product per iteration, and the basis: as many vectors as iterations.
    """
    krylov, size, largest = Krylov([start / start.norm()], [], []), start.numel(), 0.0
    epsilon = torch.finfo(start.dtype).eps
    for _ in range(min(max_iterations, size)):
        image = product(krylov.basis[-1])
        krylov.diagonal.append(torch.dot(krylov.basis[-1], image).item())
        largest = max(largest, image.norm().item())
        if len(krylov.basis) > 1:
            _check_symmetry(torch.dot(krylov.basis[-2], image).item(), krylov.beside[-1], largest)
        rest = krylov.without(image)
        length, krylov.rounding = rest.norm().item(), 10 * epsilon * largest
        krylov.is_complete = len(krylov.basis) == size or length <= krylov.rounding
        krylov.beside.append(0.0 if krylov.is_complete else length)
        if is_enough(krylov) or len(krylov.basis) == size or len(krylov.diagonal) == max_iterations:
            break
        if krylov.is_complete:
            if fresh is None:
                break
            rest = krylov.without(fresh())
        krylov.basis.append(rest / rest.norm())
    return krylov


def _check_symmetry(there: float, back: float, largest: float) -> None:
    """Refuse what is not a Hessian: ⟨p, Hq⟩ must equal ⟨q, Hp⟩."""
    if abs(there - back) > _ASYMMETRY * largest:
        raise RuntimeError(
            f"The Hessian-vector products are not symmetric ({there:.4g} one way, {back:.4g} the other), so there "
            "are no eigenvalues to find. Most likely the loss differs from pass to pass, for example because it draws "
            "from its own generator: pass a list of batches that are drawn once. Otherwise a backward pass in the "
            "model is not the derivative of its forward pass; what=('ascent', 'random') can still be measured."
        )


def eigenvalues(
    objective: Objective, count: int, tolerance: float, max_iterations: int, generator: torch.Generator, report: Report
) -> tuple[Eigenvalues, Krylov]:
    """The `count` largest eigenvalues, and the space they were found in."""

    def is_enough(krylov: Krylov) -> bool:
        report(len(krylov.diagonal), max_iterations)
        return len(krylov.diagonal) >= count and bool(krylov.are_found(tolerance)[:count].all())

    def fresh() -> Tensor:
        return objective.random(generator)

    count = min(count, objective.size)
    krylov = lanczos(objective.product, fresh(), max_iterations, is_enough, fresh)
    values, _, residuals = krylov.ritz()
    flags = tuple(krylov.are_found(tolerance)[:count].tolist())
    is_all = len(flags) == count and all(flags)
    return Eigenvalues(values[:count], residuals[:count], is_all, flags, len(krylov.diagonal)), krylov


def smallest(krylov: Krylov, tolerance: float) -> Estimate:
    """The other end of the spectrum, from the same space."""
    values, _, residuals = krylov.ritz()
    return Estimate(values[-1].item(), residuals[-1].item(), bool(krylov.are_found(tolerance)[-1]), "residual")


def trace(
    objective: Objective, krylov: Krylov, num_probes: int, tolerance: float, generator: torch.Generator, report: Report
) -> Estimate:
    """The trace: exact within a known space, by Hutchinson's probes outside of it, as Hutch++ does.

    tr(H) = tr(T) + E[zᵀHz] with z = (1 − QQᵀ)x and x of independent signs. The space was drawn before the probes,
    so the estimate is unbiased.
    """
    inside, rests = sum(krylov.diagonal), []
    if len(krylov.basis) == objective.size:
        return Estimate(inside, krylov.rounding, True, "rounding: the basis spans everything")
    for done in range(1, num_probes + 1):
        probe = krylov.without(objective.random(generator).sign())
        rests.append(torch.dot(probe, objective.product(probe)).item())
        report(done, num_probes)
    rest = mean_estimate(torch.tensor(rests, dtype=torch.float64), 0.0, "probes")
    value, error = inside + rest.value, max(rest.error, krylov.rounding)
    return Estimate(value, error, error <= tolerance * abs(value), rest.error_kind)


def density(
    objective: Objective, num_vectors: int, num_nodes: int, generator: torch.Generator, report: Report
) -> Density:
    """Stochastic Lanczos quadrature: T's eigenvalues as nodes, the squares of its vectors' first entries as weights."""
    nodes, weights = [], []
    for done in range(1, num_vectors + 1):
        values, vectors, _ = lanczos(objective.product, objective.random(generator), num_nodes).ritz()
        missing = num_nodes - len(values)  # the space was complete earlier: pad with nodes without weight
        nodes.append(torch.nn.functional.pad(values, (0, missing)))
        weights.append(torch.nn.functional.pad(vectors[0].square(), (0, missing)))
        report(done, num_vectors)
    found = Density(torch.stack(nodes), torch.stack(weights), False)
    return Density(found.nodes, found.weights, all(found.moment(order).converged for order in (1, 2)))
