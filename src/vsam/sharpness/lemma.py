"""Lemma 1 of the paper: the PSF's norm, its bound by eigenvalues and angles, and how tight that is."""

import math

import torch
from torch import Tensor

from vsam.sharpness.ascent import on_sphere
from vsam.sharpness.hessian import Report, lanczos
from vsam.sharpness.objective import Objective
from vsam.sharpness.results import Estimate, Lemma1

__all__ = ["lemma1"]


def lemma1(objective: Objective, rho: float, gradient: Tensor, max_iterations: int, report: Report) -> Lemma1:
    """Find the eigenvectors with a component along the gradient: those in the Krylov space that starts from it.

    In that space the cosine of an angle is the first entry of an eigenvector of T. A repeated eigenvalue counts once,
    with the gradient's projection onto its eigenspace as U, which makes the bound smallest. If the gradient is zero,
    there are no angles, and everything is zero.
    """
    if not bool(gradient.any()):
        none, nothing = torch.zeros(0, dtype=torch.float64), Estimate(0.0, 0.0, True, "the gradient is zero")
        return Lemma1(none, none, none, 0.0, 0.0, nothing, math.nan, is_positive_definite=False)
    _, sharp = objective.gradient(on_sphere(gradient, rho))

    def is_enough(krylov: object) -> bool:
        report(len(krylov.diagonal), max_iterations)  # type: ignore[attr-defined]
        return False

    krylov = lanczos(objective.product, gradient, max_iterations, is_enough)
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
