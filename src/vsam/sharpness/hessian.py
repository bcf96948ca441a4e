"""The Hessian's spectrum from its products with vectors: Lanczos, trace, density."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vsam.sharpness.objective import Objective
from vsam.sharpness.results import Density, Eigenvalues, Estimate, mean_estimate

_ASYMMETRY = 0.01
"""As a fraction of the largest product, beyond rounding in single precision."""


@dataclass
class Krylov:
    """An orthonormal basis Q and the tridiagonal matrix T = QᵀHQ.

    Args:
        basis: the rows of Qᵀ.
        diagonal: of T.
        beside: the numbers next to T's diagonal, and the norm of the rest at the end.
        is_complete: whether H maps the space into itself, so that all of T's eigenvalues are the Hessian's.
        rounding: the rounding error of the products. No residual is smaller.
    """

    basis: list[Tensor] = field(default_factory=list)
    diagonal: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    is_complete: bool = False
    rounding: float = 0.0

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the eigenvalues of T, largest first, their eigenvectors as columns, and the residuals."""
        matrix = torch.diag(torch.tensor(self.diagonal, dtype=torch.float64))
        inner = torch.tensor(self.beside[:-1], dtype=torch.float64)
        values, vectors = torch.linalg.eigh(matrix + torch.diag(inner, 1) + torch.diag(inner, -1))
        values, vectors = values.flip(0), vectors.flip(1)
        return values, vectors, (self.beside[-1] * vectors[-1].abs()).clamp_min(self.rounding)

    def are_found(self, tolerance: float) -> Tensor:
        """Return for each of T's eigenvalues whether its residual is within the tolerance, or only rounding."""
        values, _, residuals = self.ritz()
        return residuals <= (tolerance * values.abs()).clamp_min(self.rounding)

    def top_vector(self) -> Tensor:
        """Return the eigenvector of the largest eigenvalue."""
        result = torch.zeros_like(self.basis[0])
        for coordinate, own in zip(self.ritz()[1][:, 0].tolist(), self.basis, strict=True):
            result.add_(own, alpha=coordinate)
        return result

    def without(self, vector: Tensor) -> Tensor:
        """Return the part of a vector orthogonal to the space. Projecting twice is enough against rounding."""
        rest = vector.clone()
        for own in (*self.basis, *self.basis):
            rest.sub_(own, alpha=torch.dot(own, rest).item())
        return rest


def lanczos(
    product: Callable[[Tensor], Tensor], start: Tensor, max_iterations: int, fresh: Callable[[], Tensor] | None = None
) -> Iterator[Krylov]:
    """Yield the growing Krylov space after each product, with full re-orthogonalisation.

    Args:
        product: the Hessian times a vector.
        start: the first vector, of any length.
        max_iterations: the largest number of products.
        fresh: returns a new vector when the space is invariant but not everything, as with equal eigenvalues. None
            stops there.

    Cost: one product per iteration, and the basis: as many vectors as iterations.
    """
    krylov, size, largest = Krylov([start / start.norm()]), start.numel(), 0.0
    for iteration in range(min(max_iterations, size)):
        if iteration > 0:
            if krylov.is_complete:
                if fresh is None:
                    return
                rest = krylov.without(fresh())
            krylov.basis.append(rest / rest.norm())
        image = product(krylov.basis[-1])
        krylov.diagonal.append(torch.dot(krylov.basis[-1], image).item())
        largest = max(largest, image.norm().item())
        if iteration > 0:
            _check_symmetry(torch.dot(krylov.basis[-2], image).item(), krylov.beside[-1], largest)
        rest = krylov.without(image)
        length, krylov.rounding = rest.norm().item(), 10 * torch.finfo(start.dtype).eps * largest
        krylov.is_complete = len(krylov.basis) == size or length <= krylov.rounding
        krylov.beside.append(0.0 if krylov.is_complete else length)
        yield krylov


def _check_symmetry(there: float, back: float, largest: float) -> None:
    """Refuse what is not a Hessian: ⟨p, Hq⟩ must equal ⟨q, Hp⟩."""
    if abs(there - back) > _ASYMMETRY * largest:
        raise RuntimeError(
            f"The Hessian-vector products are not symmetric ({there:.4g} one way, {back:.4g} the other). If the loss "
            "differs from pass to pass, pass a list of batches that are drawn once. Otherwise a backward pass in the "
            "model is not the derivative of its forward pass; what=('ascent', 'random') can still be measured."
        )


def eigenvalues(objective: Objective, count: int, tolerance: float, max_iterations: int) -> tuple[Eigenvalues, Krylov]:
    """Return the `count` largest eigenvalues, and the space in which they were found."""
    count = min(count, objective.size)
    for krylov in lanczos(objective.product, objective.random(), max_iterations, objective.random):
        objective.report(len(krylov.diagonal), max_iterations)
        flags = krylov.are_found(tolerance)[:count].tolist()
        is_all = len(flags) == count and all(flags)
        if is_all:
            break
    values, _, residuals = krylov.ritz()
    return Eigenvalues(values[:count], residuals[:count], is_all, tuple(flags), len(krylov.diagonal)), krylov


def smallest(krylov: Krylov, tolerance: float) -> Estimate:
    """Return the other end of the spectrum, from the same space."""
    values, _, residuals = krylov.ritz()
    return Estimate(values[-1].item(), residuals[-1].item(), bool(krylov.are_found(tolerance)[-1]), "residual")


def trace(objective: Objective, krylov: Krylov, num_probes: int, tolerance: float) -> Estimate:
    """Return the trace: exact within a known space, by Hutchinson's probes outside of it, as Hutch++ does.

    tr(H) = tr(T) + E[zᵀHz] with z = (1 − QQᵀ)x and x of independent signs. The space was drawn before the probes,
    so the estimate is unbiased.
    """
    inside, rests = sum(krylov.diagonal), []
    if len(krylov.basis) == objective.size:
        return Estimate(inside, krylov.rounding, True, "rounding: the basis spans everything")
    for done in range(1, num_probes + 1):
        probe = krylov.without(objective.random().sign())
        rests.append(torch.dot(probe, objective.product(probe)).item())
        objective.report(done, num_probes)
    rest = mean_estimate(torch.tensor(rests, dtype=torch.float64), 0.0, "probes")
    value, error = inside + rest.value, max(rest.error, krylov.rounding)
    return Estimate(value, error, error <= tolerance * abs(value), rest.error_kind)


def density(objective: Objective, num_vectors: int, num_nodes: int) -> Density:
    """Return the spectral density by stochastic Lanczos quadrature.

    T's eigenvalues are the nodes, the squares of its eigenvectors' first entries their weights.
    """
    nodes, weights = torch.zeros(2, num_vectors, num_nodes, dtype=torch.float64)  # a smaller space has fewer nodes
    for i in range(num_vectors):
        *_, krylov = lanczos(objective.product, objective.random(), num_nodes)
        values, vectors, _ = krylov.ritz()
        nodes[i, : len(values)], weights[i, : len(values)] = values, vectors[0].square()
        objective.report(i + 1, num_vectors)
    found = Density(nodes, weights, False)
    return Density(nodes, weights, all(found.moment(order).converged for order in (1, 2)))
