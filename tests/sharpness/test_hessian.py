"""Eigenvalues, trace and density against dense Hessians."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from curved_net import batches, dense, loss, net
from vsam.sharpness import measure
from vsam.sharpness.hessian import lanczos

EIGENVALUES = {"what": "top_eigenvalues", "num_eigenvalues": 4, "tolerance": 1e-8, "max_iterations": 43}


def test_the_top_eigenvalues_are_those_of_the_dense_hessian() -> None:
    model, given = net(), batches()
    exact = torch.linalg.eigvalsh(dense(model, given)[2]).flip(0)
    found = measure(model, loss, given, **EIGENVALUES)
    assert found.top_eigenvalues is not None
    assert found.top_eigenvalues.converged
    torch.testing.assert_close(found.top_eigenvalues.values, exact[:4], rtol=1e-7, atol=0)
    assert [one.value for one in found.top_eigenvalues] == found.top_eigenvalues.values.tolist()
    assert found.smallest_eigenvalue is not None
    assert found.smallest_eigenvalue.value == pytest.approx(exact[-1].item(), rel=1e-5)


def test_too_few_iterations_are_said_not_to_converge_and_the_residual_still_holds() -> None:
    model, given = net(), batches()
    exact = torch.linalg.eigvalsh(dense(model, given)[2])
    found = measure(model, loss, given, **{**EIGENVALUES, "max_iterations": 6}).top_eigenvalues
    assert found is not None
    assert not found.converged
    assert found.flags[-1] is False
    assert "not converged" in str(found[3])
    assert found.num_products == 6
    for one in found:
        assert (exact - one.value).abs().min() <= one.error + 1e-12
    assert (exact.flip(0)[:4] - found.values).abs().max() > 1e-3  # so that the flag is not for nothing


@pytest.mark.parametrize(
    ("spectrum", "count"),
    [([100.0, 10, 9, 8, 7, *torch.linspace(0, 1, 80)], 5), ([2.0, -1000, *torch.linspace(-0.6, 0, 59)], 1)],
)
def test_an_eigenvalue_far_below_the_largest_has_to_converge_too(spectrum: list[float], count: int) -> None:
    """Its residual beside the largest one says nothing about it."""
    curvature, model = torch.tensor(spectrum, dtype=torch.float64), nn.Linear(len(spectrum), 1, bias=False).double()

    def bowl(model: nn.Module, batch: Tensor) -> Tensor:
        return 0.5 * (curvature * model.weight[0] ** 2).sum()  # type: ignore[operator, index]

    found = measure(model, bowl, [torch.ones(1)], what="top_eigenvalues", num_eigenvalues=count, max_iterations=60)
    assert found.top_eigenvalues is not None
    assert found.top_eigenvalues.converged
    assert found.top_eigenvalues.values.tolist() == pytest.approx(spectrum[:count], rel=1e-2)


def test_errors_are_not_below_rounding() -> None:
    """Also where the basis spans everything, and where all batches say the same."""
    single = [(inputs.float(), targets) for inputs, targets in batches((8,)) * 2]
    options: dict[str, Any] = {"what": ("top_eigenvalues", "trace", "ascent"), "num_eigenvalues": 43}
    found = measure(net().float(), loss, single, **options)
    exact = measure(net(), loss, batches((8,)) * 2, **options)
    assert found.top_eigenvalues is not None
    assert exact.top_eigenvalues is not None
    misses = (found.top_eigenvalues.values - exact.top_eigenvalues.values).abs()
    assert 0 < misses.max() <= found.top_eigenvalues.errors.min()
    for name in ("trace", "ascent"):
        one, other = getattr(found, name), getattr(exact, name)
        assert abs(one.value - other.value) <= one.error < 1e-5


def test_equal_eigenvalues_are_all_found() -> None:
    model = nn.Linear(6, 1, bias=False).double()
    found = measure(model, lambda model, batch: 1.5 * model.weight.square().sum(), [torch.ones(1)], num_eigenvalues=3)
    assert found.top_eigenvalues is not None
    assert found.top_eigenvalues.values.tolist() == pytest.approx([3.0, 3.0, 3.0])
    assert found.trace is not None
    assert abs(found.trace.value - 18) < 4 * found.trace.error


def test_re_orthogonalisation_leaves_no_ghosts() -> None:
    """Without it, an eigenvalue far above the others is found several times."""
    spectrum = torch.cat([torch.tensor([1e4]), torch.linspace(0, 1, 79)]).double()
    *_, krylov = lanczos(lambda vector: spectrum * vector, torch.ones(80, dtype=torch.float64), 80)
    values, _, residuals = krylov.ritz()
    assert len(krylov.basis) == 80
    torch.testing.assert_close(values, spectrum.sort(descending=True)[0], rtol=1e-6, atol=1e-7)
    assert residuals.max() < 1e-10


def test_the_trace_is_exact_where_the_basis_spans_everything() -> None:
    model, given = net(), batches()
    found = measure(model, loss, given, what=("top_eigenvalues", "trace"), num_eigenvalues=43).trace
    assert found is not None
    assert found.value == pytest.approx(dense(model, given)[2].trace().item(), rel=1e-9)
    assert found.error < 1e-14
    assert found.converged


def test_the_traces_error_is_right_on_average_and_smaller_with_deflation() -> None:
    model, given = net(), batches((12,))
    exact = dense(model, given)[2].trace().item()
    errors = {}
    for what in (("trace",), ("top_eigenvalues", "trace")):
        found = [
            measure(model, loss, given, what=what, num_probes=8, max_iterations=12, seed=i).trace for i in range(12)
        ]
        assert all(one and "8 probes" in one.error_kind for one in found)
        misses = Tensor([(one.value - exact) / one.error for one in found if one])
        assert misses.abs().median() < 1.5  # in standard errors
        assert abs(misses.mean()) < 1.0
        errors[what] = sum(one.error for one in found if one)
    assert errors["top_eigenvalues", "trace"] < 0.8 * errors["trace",]
    strict = measure(model, loss, given, what="trace", num_probes=8, tolerance=1e-9).trace
    assert strict is not None
    assert not strict.converged


def test_the_density_has_the_moments_of_the_spectrum() -> None:
    model, given = net(), batches((12,))
    exact = torch.linalg.eigvalsh(dense(model, given)[2])
    found = measure(model, loss, given, what="density", num_starts=20, max_iterations=15).density
    assert found is not None
    torch.testing.assert_close(found.weights.sum(1), torch.ones(20, dtype=torch.float64))
    for order in (1, 2, 3):
        moment = found.moment(order)
        assert abs(moment.value - exact.pow(order).mean().item()) < 3.5 * moment.error
    points = torch.linspace(-2, 3, 2001)
    assert torch.trapezoid(found.at(points), points.double()).item() == pytest.approx(1, rel=1e-3)
    few = measure(model, loss, given, what="density", num_starts=2, max_iterations=15, seed=3).density
    assert few is not None
    assert not few.converged


def test_what_is_not_symmetric_is_no_hessian() -> None:
    model, given, own = net(), batches(), random.Random(0)
    with pytest.raises(RuntimeError, match="differs from pass to pass"):
        measure(model, lambda model, batch: loss(model, batch) * own.uniform(1, 3), given)

    class Skewed(torch.autograd.Function):
        """A backward pass that is not the derivative of the forward pass, nor of any other function."""

        @staticmethod
        def forward(ctx: Any, weight: Tensor) -> Tensor:
            ctx.save_for_backward(weight)
            return weight.sum()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
            (weight,) = ctx.saved_tensors
            return gradient * weight.roll(1)

    line = nn.Linear(6, 1, bias=False).double()
    with pytest.raises(RuntimeError, match="is not the derivative"):
        measure(line, lambda model, batch: Skewed.apply(model.weight), [torch.ones(1)])  # type: ignore[no-untyped-call]


def test_a_loss_without_curvature_has_none() -> None:
    model = nn.Linear(3, 1).double()
    found = measure(model, lambda model, batch: model(batch).mean(), [torch.ones(2, 3).double()], rho=0.1)
    assert found.top_eigenvalues is not None
    assert found.top_eigenvalues.values.tolist() == [0.0]
    assert found.trace is not None
    assert found.trace.value == 0
    assert found.ascent is not None
    assert found.ascent.value == pytest.approx(0.1 * 2)  # rho times the gradient's norm


@pytest.mark.filterwarnings("ignore")  # of its use of torch.jit
def test_other_tools_find_the_same() -> None:
    curvlinops = pytest.importorskip("curvlinops")
    model, given = net(), batches()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    operator = curvlinops.HessianLinearOperator(model, nn.CrossEntropyLoss(), parameters, given)
    matrix = operator @ torch.eye(43, dtype=torch.float64)
    exact = torch.linalg.eigvalsh(torch.as_tensor(matrix)).flip(0)
    found = measure(model, loss, given, **EIGENVALUES)
    assert found.top_eigenvalues is not None
    torch.testing.assert_close(found.top_eigenvalues.values, exact[:4], rtol=1e-6, atol=1e-9)
