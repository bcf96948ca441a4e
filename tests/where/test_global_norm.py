"""GlobalNorm moves by ρ·g/(‖g‖ + 1e-12), with one norm over everything that is moved."""

import pytest
import torch
from torch import Tensor, nn

import vsam
from vsam import GlobalNorm


def random_tensors(seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (5,), (2, 2, 3, 3), ()]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def test_one_radius() -> None:
    gradients = random_tensors(0)
    where, norms = GlobalNorm(0.3), [g.norm() for g in gradients]
    length = sum(float(g.square().sum()) for g in gradients) ** 0.5
    results = [g.clone() for g in gradients]
    where.to_offsets_(results, random_tensors(1), [0.3] * 4, norms)
    for result, gradient in zip(results, gradients, strict=True):
        torch.testing.assert_close(result, 0.3 * gradient / (length + 1e-12), rtol=1e-14, atol=0)
    assert sum(float(r.square().sum()) for r in results) ** 0.5 == pytest.approx(0.3)


def test_several_radii_share_one_norm() -> None:
    gradients, rhos = random_tensors(0), [0.3, 0.0, 0.3, 2.0]
    norms = [g.norm() for g in gradients]
    results = [g.clone() for g in gradients]
    GlobalNorm(0.05).to_offsets_(results, random_tensors(1), rhos, norms)
    length = sum(float(g.square().sum()) for g in gradients) ** 0.5
    for result, gradient, rho in zip(results, gradients, rhos, strict=True):
        torch.testing.assert_close(result, rho * gradient / (length + 1e-12), rtol=1e-14, atol=0)


def test_a_gradient_of_zero_moves_nothing() -> None:
    results = [torch.zeros(3), torch.zeros(2, 2)]
    GlobalNorm().to_offsets_(results, results, [0.05, 0.05], [torch.zeros(()), torch.zeros(())])
    assert all(not result.any() for result in results)


def test_a_tiny_gradient_is_softened_by_the_constant() -> None:
    results = [torch.tensor([1e-12], dtype=torch.float64)]
    GlobalNorm(1.0).to_offsets_(results, results, [1.0], [torch.tensor(1e-12, dtype=torch.float64)])
    assert float(results[0]) == pytest.approx(0.5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_low_precision_keeps_its_type(dtype: torch.dtype) -> None:
    gradients = random_tensors(2, dtype)
    norms = [g.float().norm() for g in gradients]
    results = [g.clone() for g in gradients]
    GlobalNorm(0.5).to_offsets_(results, gradients, [0.5] * 4, norms)
    for result, gradient in zip(results, gradients, strict=True):
        assert result.dtype == dtype
        torch.testing.assert_close(result, (0.5 * gradient.float() / torch.stack(norms).norm()).to(dtype))


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
