"""The rise of the loss at a distance: along the gradient, at worst, on average."""

import math

import pytest
import torch
from torch import Tensor, nn

from curved_net import batches, dense, loss, net
from vsam.sharpness import measure

SCALES = torch.tensor([[4.0, 2.0, 1.0]], dtype=torch.float64)


def bowl(model: nn.Module, batch: Tensor) -> Tensor:
    """½ wᵀ A w with A diagonal."""
    weight: Tensor = model.weight  # type: ignore[assignment]
    return 0.5 * (SCALES * weight.square()).sum()


def at(*weights: float) -> nn.Linear:
    model = nn.Linear(3, 1, bias=False).double()
    model.weight.data.copy_(torch.tensor([weights]))
    return model


def test_the_ascent_is_that_of_sam_over_all_samples() -> None:
    model, given = net(), batches()
    before, gradient, _ = dense(model, given)
    found = measure(model, loss, given, rho=0.3, what="ascent")
    assert found.loss == pytest.approx(before, rel=1e-12)
    assert found.gradient_norm == pytest.approx(gradient.norm().item(), rel=1e-12)
    moved = net()
    vector = nn.utils.parameters_to_vector(moved.parameters()).detach()
    nn.utils.vector_to_parameters(vector + 0.3 * gradient / gradient.norm(), moved.parameters())
    assert found.ascent is not None
    assert found.ascent.value == pytest.approx(dense(moved, given)[0] - before, rel=1e-9)
    assert "3 batches" in found.ascent.error_kind


def test_per_batch_it_is_the_weighted_mean_of_each_batchs_own() -> None:
    model, given = net(), batches()
    found = measure(model, loss, given, rho=0.3, what="ascent")
    own = [measure(model, loss, [batch], rho=0.3, what="ascent").ascent for batch in given]
    mean = sum(len(batch[1]) * one.value for batch, one in zip(given, own, strict=True) if one) / 19
    assert found.batch_ascent is not None
    assert found.batch_ascent.value == pytest.approx(mean, rel=1e-9)
    assert found.m == pytest.approx(19 / 3)
    assert own[0] is not None
    assert "one batch" in own[0].error_kind


def test_the_worst_case_of_a_bowl_is_along_its_steepest_axis() -> None:
    """At the minimum the gradient is zero, and only curvature shows the way."""
    found = measure(at(0, 0, 0), bowl, [torch.ones(1)], rho=0.5)
    assert found.worst is not None
    assert found.worst.value == pytest.approx(0.5 * 4 * 0.25, rel=1e-3)
    assert found.worst.converged
    assert found.ascent is not None
    assert found.ascent.value == 0
    assert not found.ascent.converged  # nothing above rounding
    assert found.random is not None
    assert found.random.value == pytest.approx(0.5 * 0.25 * 7 / 3, rel=0.5)


def test_the_worst_case_off_the_minimum_is_the_stationary_point_on_the_sphere() -> None:
    found = measure(at(0.3, -0.6, 0.5), bowl, [torch.ones(1)], rho=0.5, what="worst", tolerance=1e-6, max_steps=200)
    angles = torch.linspace(0, math.pi, 400, dtype=torch.float64)
    turns = torch.linspace(0, 2 * math.pi, 800, dtype=torch.float64)
    polar, turn = torch.meshgrid(angles, turns, indexing="ij")
    sphere = torch.stack([polar.sin() * turn.cos(), polar.sin() * turn.sin(), polar.cos()], -1)
    start = torch.tensor([0.3, -0.6, 0.5], dtype=torch.float64)
    rises = 0.5 * (SCALES[0] * ((start + 0.5 * sphere).square() - start.square())).sum(-1)
    assert found.worst is not None
    assert found.worst.converged
    assert found.worst.value == pytest.approx(rises.max().item(), rel=1e-3)
    assert found.worst.value >= rises.max().item() - 1e-9
    cut = measure(at(0.3, -0.6, 0.5), bowl, [torch.ones(1)], rho=0.5, what="worst", tolerance=1e-6, max_steps=1)
    assert cut.worst is not None
    assert not cut.worst.converged


def test_the_random_average_has_the_traces_share() -> None:
    found = measure(at(0.3, -0.6, 0.5), bowl, [torch.ones(1)], rho=0.1, what="random", num_directions=400)
    assert found.random is not None
    exact = 0.5 * 0.01 * 7 / 3  # ρ² tr(H) / 2n: the slope cancels in pairs
    assert abs(found.random.value - exact) < 4 * found.random.error
    assert found.random.error < 0.05 * exact
    assert found.random.converged


def test_the_adaptive_form_measures_in_units_of_the_weights() -> None:
    model, given = net(), batches()
    _, gradient, hessian = dense(model, given)
    unit = torch.cat(
        [(p.detach().abs() + 0.01 if p.ndim > 1 else p.detach() * 0 + 1).reshape(-1) for p in model.parameters()]
    )
    found = measure(model, loss, given, rho=0.5, adaptive=True, num_eigenvalues=2, tolerance=1e-6)
    assert found.adaptive
    scaled = torch.linalg.eigvalsh(unit[:, None] * hessian * unit).flip(0)
    assert found.top_eigenvalues is not None
    torch.testing.assert_close(found.top_eigenvalues.values, scaled[:2], rtol=1e-5, atol=0)
    moved = net()
    vector = nn.utils.parameters_to_vector(moved.parameters()).detach()
    offset = 0.5 * unit.square() * gradient / (unit * gradient).norm()
    nn.utils.vector_to_parameters(vector + offset, moved.parameters())
    assert found.ascent is not None
    assert found.ascent.value == pytest.approx(dense(moved, given)[0] - found.loss, rel=1e-9)


def test_a_radius_of_zero_gives_no_rise() -> None:
    found = measure(net(), loss, batches(), rho=0)
    for one in (found.ascent, found.batch_ascent, found.worst, found.random):
        assert one is not None
        assert one.value == 0


def test_the_worst_point_is_no_lower_than_the_weights() -> None:
    """Near a maximum every start on the sphere is lower."""
    model, curvature = nn.Linear(3, 1, bias=False).double(), torch.tensor([-30.0, -2.0, -0.1]).double()
    model.weight.data.copy_(torch.tensor([[1e-3, 7e-4, -4e-4]]))

    def hill(model: nn.Module, batch: object) -> Tensor:
        return 0.5 * (curvature * model.weight[0] ** 2).sum()  # type: ignore[operator, index]

    found = measure(model, hill, [torch.ones(1)], what="worst")
    assert found.worst is not None
    assert 0 < found.worst.value <= -found.loss
