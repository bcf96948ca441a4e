"""Lemma 1 against dense Hessians."""

import math

import pytest
import torch
from torch import nn

from curved_net import batches, dense, loss, net
from research.lemma1 import lemma1, main


def test_its_quantities_are_those_of_the_dense_hessian() -> None:
    model, given = net(), batches()
    _, gradient, hessian = dense(model, given)
    values, vectors = torch.linalg.eigh(hessian)
    cosines = (vectors.T @ gradient / gradient.norm()).abs()
    found = lemma1(model, loss, given, rho=1e-4, max_iterations=43)
    assert found.bound.value == pytest.approx(1e-4 * (values.abs() @ cosines).item(), rel=1e-5)
    assert found.bound.converged
    first_order = 1e-4 * (hessian @ gradient).norm().item() / gradient.norm().item()
    assert found.first_order == pytest.approx(first_order, rel=1e-9)
    assert found.psf_norm == pytest.approx(first_order, rel=1e-3)  # the distance is small
    assert found.tightness == pytest.approx(found.first_order / found.bound.value)
    assert 0 < found.tightness < 1
    assert not found.is_positive_definite
    torch.testing.assert_close(found.eigenvalues[:3], values.flip(0)[:3], rtol=1e-6, atol=0)
    torch.testing.assert_close(found.cosines[:3], cosines.flip(0)[:3], rtol=1e-4, atol=1e-6)
    assert found.cosines.square().sum().item() == pytest.approx(1)


def test_a_sum_over_fewer_eigenvectors_is_not_called_a_bound() -> None:
    model, given = net(), batches()
    whole, part = (lemma1(model, loss, given, max_iterations=number) for number in (43, 5))
    assert not part.bound.converged
    assert "of those found" in part.bound.error_kind
    assert part.bound.value < whole.bound.value
    assert part.first_order == pytest.approx(whole.first_order, rel=1e-9)  # exact from two iterations on


def test_along_an_eigenvector_the_bound_is_reached() -> None:
    model = nn.Linear(3, 1, bias=False).double()
    model.weight.data.copy_(torch.tensor([[0.0, 2.0, 0.0]]))
    scales = torch.tensor([[4.0, 2.0, 1.0]]).double()

    def bowl(model: nn.Module, batch: object) -> torch.Tensor:
        return 0.5 * (scales * model.weight.square()).sum()  # type: ignore[operator, union-attr]

    found = lemma1(model, bowl, [torch.ones(1)], rho=0.1)
    assert found.tightness == pytest.approx(1)
    assert found.bound.value == pytest.approx(0.2)
    assert found.is_positive_definite
    assert math.isclose(found.psf_norm, 0.2, rel_tol=1e-9)


def test_where_the_gradient_is_zero_there_are_no_angles() -> None:
    model = nn.Linear(3, 1, bias=False).double()
    model.weight.data.zero_()
    found = lemma1(model, lambda model, batch: model.weight.square().sum(), [torch.ones(1)])
    assert len(found.eigenvalues) == len(found.cosines) == 0
    assert found.bound.value == found.first_order == found.psf_norm == 0
    assert math.isnan(found.tightness)


def test_the_program_prints_a_line_per_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert all("(not converged)" not in line for line in lines)
