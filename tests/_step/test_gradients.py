"""PSF is what the paper says it is: ρ·H·g/‖g‖ up to terms of ρ², bounded as in Lemma 1."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vsam
from oracles import flat, flat_batches, flat_gradient, flat_loss, smooth_network


def remembered_psf(optimizer: vsam.SharpnessAware) -> Tensor:
    memory = optimizer.state_dict()["sharpness"]["memory"]
    return torch.cat([memory[i].flatten() for i in sorted(memory)])


def quadratic_psf(matrix: Tensor, w: Tensor, target: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """The library's PSF on ½ wᵀAw − bᵀw, and the gradient there."""
    weights = nn.Parameter(w.clone())
    optimizer = vsam.VSAM(torch.optim.SGD([weights], lr=0.1), rho=rho)

    def closure() -> Tensor:
        loss = 0.5 * weights @ matrix @ weights - target @ weights
        loss.backward()
        return loss

    optimizer.step(closure)
    return remembered_psf(optimizer), matrix @ w - target


@st.composite
def positive_definite(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues, orthonormal eigenvectors in columns, and a generator's worth of two vectors."""
    size = draw(st.integers(1, 8))
    values = draw(st.lists(st.floats(1e-3, 1e3), min_size=size, max_size=size))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    basis = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    return torch.tensor(values, dtype=torch.float64), basis, torch.randn(2, size, generator=generator).double()


@given(positive_definite(), st.floats(1e-3, 1.0))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_on_a_quadratic_psf_is_rho_times_a_times_the_unit_gradient(
    problem: tuple[Tensor, Tensor, Tensor], rho: float
) -> None:
    values, basis, (w, target) = problem
    matrix = basis @ values.diag() @ basis.T
    psf, g = quadratic_psf(matrix, w, target, rho)
    scale = float(matrix.abs().max() * (1 + w.abs().max()) + target.abs().max())
    torch.testing.assert_close(psf, rho * matrix @ g / g.norm(), rtol=1e-9, atol=1e-13 * scale)


@given(positive_definite(), st.floats(1e-3, 1.0))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_lemma_1_bounds_the_norm_of_psf(problem: tuple[Tensor, Tensor, Tensor], rho: float) -> None:
    values, basis, (w, target) = problem
    psf, g = quadratic_psf(basis @ values.diag() @ basis.T, w, target, rho)
    cosines = (basis.T @ g).abs() / g.norm()
    bound = float(rho * (values * cosines).sum())
    assert float(psf.norm()) <= bound * (1 + 1e-9) + 1e-12


def test_lemma_1_is_met_with_equality_along_an_eigenvector() -> None:
    values = torch.tensor([0.5, 2.0, 7.0], dtype=torch.float64)
    w = torch.tensor([0.0, 3.0, 0.0], dtype=torch.float64)
    psf, _ = quadratic_psf(values.diag(), w, torch.zeros(3, dtype=torch.float64), rho=0.1)
    assert float(psf.norm()) == pytest.approx(0.1 * 2.0)


def test_psf_approaches_the_hessian_product_with_the_square_of_rho() -> None:
    inputs, labels = next(flat_batches(seed=3, count=1, size=32))
    w = flat(smooth_network(seed=4))
    hessian = torch.autograd.functional.hessian(lambda at: flat_loss(at, inputs, labels), w)
    g = flat_gradient(w, inputs, labels)
    rhos = [10**-exponent for exponent in (1.5, 2.0, 2.5, 3.0, 3.5)]
    distances = []
    for rho in rhos:
        model = smooth_network(seed=4)
        optimizer = vsam.VSAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, rho=rho)

        def closure(model: nn.Module = model) -> Tensor:
            loss = cross_entropy(model(inputs), labels)
            loss.backward()
            return loss

        optimizer.step(closure)
        distances.append(float((remembered_psf(optimizer) - rho * hessian @ g / g.norm()).norm()))
    relative = [
        distance / (rho * float((hessian @ g).norm() / g.norm())) for distance, rho in zip(distances, rhos, strict=True)
    ]
    assert slope(rhos, distances) == pytest.approx(2, abs=0.05)
    assert slope(rhos, relative) == pytest.approx(1, abs=0.05)
    assert relative[0] < 0.1


def slope(xs: list[float], ys: list[float]) -> float:
    """The exponent of a power law fitted by least squares."""
    a, b = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    above = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return above / sum((x - mean_a) ** 2 for x in a)
