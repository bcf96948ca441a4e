"""Check the paper's Lemma 1 on a trained network: ρ‖Hg‖/‖g‖ ≤ ρ Σ δᵢ |cos θᵢ|, and how tight that is.

Command: python research/lemma1.py
Hardware: one CPU core, some seconds.
Result: a line per number of steps, with the PSF's norm, what the lemma bounds, its bound and the tightness.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import vsam
from vsam.sharpness import Estimate
from vsam.sharpness.ascent import on_sphere
from vsam.sharpness.hessian import lanczos
from vsam.sharpness.objective import Loss, Objective
from vsam.sharpness.session import untouched, unwrapped


@dataclass(frozen=True)
class Lemma1:
    """The quantities of Lemma 1 at some weights.

    Args:
        eigenvalues: δᵢ, those whose eigenvectors have a component along the gradient, largest first.
        cosines: |cos θᵢ| between their eigenvectors and the gradient.
        errors: the eigenvalues' residuals.
        psf_norm: ‖∇L(w + ρ g/‖g‖) − ∇L(w)‖, the L2-PSF at SAM's perturbation.
        first_order: ρ‖Hg‖/‖g‖, what the lemma bounds.
        bound: ρ Σ |δᵢ| |cos θᵢ|. It has converged only if all these eigenvectors were found. With fewer the sum is
            not a bound, only a lower estimate of it.
        tightness: first_order / bound, 1 if the bound is reached, NaN if both are zero.
        is_positive_definite: whether all these eigenvalues are positive, as the lemma assumes. With |δᵢ| it need not.
    """

    eigenvalues: Tensor
    cosines: Tensor
    errors: Tensor
    psf_norm: float
    first_order: float
    bound: Estimate
    tightness: float
    is_positive_definite: bool


def lemma1(
    model: nn.Module, loss: Loss, batches: Iterable[Any], rho: float = 0.05, *, max_iterations: int = 50
) -> Lemma1:
    """Find the eigenvectors with a component along the gradient: those in the Krylov space that starts from it.

    In that space the cosine of an angle is the first entry of an eigenvector of T. A repeated eigenvalue counts once,
    with the gradient's projection onto its eigenspace as the eigenvector, which makes the bound smallest. If the
    gradient is zero, there are no angles, and everything is zero.

    Args:
        model, loss, batches, rho: as in `vsam.sharpness.measure`, with the layers in evaluation mode.
        max_iterations: largest number of Hessian-vector products.
    """
    with untouched(unwrapped(model), batches, "eval") as rewind:
        objective = Objective(model, loss, batches, rewind)
        _, gradient = objective.gradient()
        if not bool(gradient.any()):
            none, nothing = torch.zeros(0, dtype=torch.float64), Estimate(0.0, 0.0, True, "the gradient is zero")
            return Lemma1(none, none, none, 0.0, 0.0, nothing, math.nan, is_positive_definite=False)
        _, sharp = objective.gradient(on_sphere(gradient, rho))
        *_, krylov = lanczos(objective.product, gradient, max_iterations)
    values, vectors, residuals = krylov.ritz()
    cosines = vectors[0].abs()
    first_order = rho * math.hypot(krylov.diagonal[0], krylov.beside[0])
    bound = rho * (values.abs() @ cosines).item()
    missing = rho * (residuals @ cosines).item()
    kind = "residuals times cosines" if krylov.is_complete else "residuals times cosines, of those found"
    return Lemma1(
        eigenvalues=values,
        cosines=cosines,
        errors=residuals,
        psf_norm=torch.linalg.vector_norm(sharp - gradient).item(),
        first_order=first_order,
        bound=Estimate(bound, missing, krylov.is_complete, kind),
        tightness=first_order / bound if bound else math.nan,
        is_positive_definite=bool((values > 0).all()),
    )


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    inputs = torch.randn(128, 8, dtype=torch.float64)
    targets = inputs[:, :3].argmax(1)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.5), model=model, rho=0.05)

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def closure() -> Tensor:
        value = loss(model, (inputs, targets))
        value.backward()
        return value

    for step in range(201):
        if step % 50 == 0:
            found = lemma1(model, loss, [(inputs, targets)], max_iterations=195)
            print(
                f"step {step}: ‖PSF‖ {found.psf_norm:.4g}, ρ‖Hg‖/‖g‖ {found.first_order:.4g}, bound {found.bound}, "
                f"tightness {found.tightness:.2f}, positive definite: {found.is_positive_definite}"
            )
        optimizer.step(closure)


if __name__ == "__main__":
    main()
