"""GlobalNorm moves by ρ·g/(‖g‖ + 1e-12), with one norm over everything that is moved."""

import math

import pytest
import torch
from torch import Tensor, nn

import vsam
from vsam import GlobalNorm
from vsam.where.global_norm import move_

F32 = torch.float32


def random_tensors(seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (5,), (2, 2, 3, 3), ()]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def norm_of(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors]).to(torch.promote_types(tensors[0].dtype, F32)).norm()


def from_the_origin(where: GlobalNorm, gradients: list[Tensor], rhos: list[float]) -> list[Tensor]:
    """Return the perturbed weights that start at zero, which are e itself, not rounded by an addition."""
    weights = [torch.zeros_like(gradient) for gradient in gradients]
    where.perturb_(weights, gradients, rhos, norm_of(gradients))
    return weights


def test_one_radius() -> None:
    gradients = random_tensors(0)
    length = sum(float(g.square().sum()) for g in gradients) ** 0.5
    results = from_the_origin(GlobalNorm(0.3), gradients, [0.3] * 4)
    for result, gradient in zip(results, gradients, strict=True):
        torch.testing.assert_close(result, 0.3 * gradient / (length + 1e-12), rtol=1e-14, atol=0)
    assert sum(float(r.square().sum()) for r in results) ** 0.5 == pytest.approx(0.3)


def test_several_radii_share_one_norm() -> None:
    gradients, rhos = random_tensors(0), [0.3, 0.0, 0.3, 2.0]
    results = from_the_origin(GlobalNorm(0.05), gradients, rhos)
    length = sum(float(g.square().sum()) for g in gradients) ** 0.5
    for result, gradient, rho in zip(results, gradients, rhos, strict=True):
        torch.testing.assert_close(result, rho * gradient / (length + 1e-12), rtol=1e-14, atol=0)


@pytest.mark.parametrize("rhos", [[0.3] * 4, [0.3, 0.0, -0.3, 2.0]])
def test_weights_are_moved_in_place_and_gradients_are_left_alone(rhos: list[float]) -> None:
    weights, gradients = random_tensors(1), random_tensors(0)
    before, storage = [w.clone() for w in weights], [w.data_ptr() for w in weights]
    length = norm_of(gradients)
    GlobalNorm(0.3).perturb_(weights, gradients, rhos, length)
    for weight, old, gradient, rho in zip(weights, before, gradients, rhos, strict=True):
        torch.testing.assert_close(weight, old + rho * gradient / (length + 1e-12), rtol=1e-14, atol=1e-15)
        assert rho == 0 or not torch.equal(weight, old)
    assert [w.data_ptr() for w in weights] == storage
    assert all(torch.equal(g, kept) for g, kept in zip(gradients, random_tensors(0), strict=True))
    assert torch.equal(length, norm_of(gradients))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("rhos", [[0.3] * 4, [0.3, 0.0, 0.3, 2.0]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_gradient_that_is_not_finite_moves_nothing(bad: float, rhos: list[float], dtype: torch.dtype) -> None:
    weights, gradients = random_tensors(1, dtype), random_tensors(0, dtype)
    gradients[1][2] = bad
    GlobalNorm(0.3).perturb_(weights, gradients, rhos, norm_of(gradients))
    assert all(torch.equal(w, kept) for w, kept in zip(weights, random_tensors(1, dtype), strict=True))


def test_the_norm_is_the_one_given() -> None:
    weights = [torch.zeros(2)]
    move_(weights, [torch.tensor([3.0, 4.0])], [0.5], torch.tensor(10.0))
    torch.testing.assert_close(weights[0], torch.tensor([0.15, 0.2]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_gradient_of_zero_moves_nothing(dtype: torch.dtype) -> None:
    weights = random_tensors(1, dtype)
    GlobalNorm().perturb_(weights, [torch.zeros_like(w) for w in weights], [0.05] * 4, torch.zeros(()))
    assert all(torch.equal(w, kept) for w, kept in zip(weights, random_tensors(1, dtype), strict=True))


def test_a_gradient_near_the_end_of_half_precision_moves_by_the_radius() -> None:
    """One over its norm is more than half precision can hold."""
    gradients = [torch.tensor([3e-7, 4e-7]).half(), torch.tensor([6e-8]).half()]
    results = from_the_origin(GlobalNorm(0.5), gradients, [0.5, 0.5])
    assert sum(float(r.double().square().sum()) for r in results) ** 0.5 == pytest.approx(0.5, rel=1e-3)


def test_a_tiny_gradient_is_softened_by_the_constant() -> None:
    (result,) = from_the_origin(GlobalNorm(1.0), [torch.tensor([1e-12], dtype=torch.float64)], [1.0])
    assert float(result) == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_low_precision_keeps_its_type(dtype: torch.dtype) -> None:
    gradients = random_tensors(2, dtype)
    results = from_the_origin(GlobalNorm(0.5), gradients, [0.5] * 4)
    for result, gradient in zip(results, gradients, strict=True):
        assert result.dtype == dtype
        torch.testing.assert_close(result, (0.5 * gradient.float() / norm_of(gradients)).to(dtype))


def test_types_may_be_mixed() -> None:
    gradients = [random_tensors(2, dtype)[i] for i, dtype in enumerate((torch.bfloat16, F32, torch.float16, F32))]
    length = sum(float(g.double().square().sum()) for g in gradients) ** 0.5
    results = [torch.zeros_like(g) for g in gradients]
    GlobalNorm(0.5).perturb_(results, gradients, [0.5] * 4, torch.tensor(length))
    for result, gradient in zip(results, gradients, strict=True):
        torch.testing.assert_close(result, (0.5 * gradient.double() / length).to(gradient.dtype))


def test_the_second_pass_happens_there() -> None:
    a, b, c = (nn.Parameter(torch.full((2,), value, dtype=torch.float64)) for value in (1.0, 2.0, 5.0))
    groups = [{"params": [a], "rho": 0.2}, {"params": [b]}, {"params": [c], "perturb": False}]
    optimizer = vsam.SAM(torch.optim.SGD(groups, lr=0.1), rho=0.1)
    seen: list[list[Tensor]] = []

    def closure() -> Tensor:
        seen.append([p.detach().clone() for p in (a, b, c)])
        loss = sum(p.square().sum() for p in (a, b, c)) / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    first, second = seen
    length = (2 * 1.0**2 + 2 * 2.0**2) ** 0.5  # c is left out of the norm
    torch.testing.assert_close(second[0] - first[0], torch.full_like(first[0], 0.2 * 1.0 / length))
    torch.testing.assert_close(second[1] - first[1], torch.full_like(first[1], 0.1 * 2.0 / length))
    torch.testing.assert_close(second[2], first[2], rtol=0, atol=0)
