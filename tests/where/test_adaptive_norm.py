"""AdaptiveNorm moves by ρ·t²g/(‖t g‖ + 1e-12), with t = |w| + η on matrices and filters and 1 elsewhere."""

import pytest
import torch
from torch import Tensor

from vsam import AdaptiveNorm, GlobalNorm

SHAPES = [(3, 4), (5,), (2, 2, 3, 3), ()]


def random_tensors(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


def norms_of(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.norm() for tensor in tensors]


@pytest.mark.parametrize("eta", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("rhos", [[0.5] * 4, [0.5, 0.1, 0.0, 0.1]])
def test_the_formula(eta: float, rhos: list[float]) -> None:
    gradients, weights = random_tensors(0), random_tensors(1)
    results = [g.clone() for g in gradients]
    AdaptiveNorm(0.5, eta).to_offsets_(results, weights, rhos, norms_of(gradients))
    units = [w.abs() + eta if w.ndim >= 2 else torch.ones_like(w) for w in weights]
    length = sum(float((t * g).square().sum()) for t, g in zip(units, gradients, strict=True)) ** 0.5
    for result, gradient, t, rho in zip(results, gradients, units, rhos, strict=True):
        torch.testing.assert_close(result, rho * t * t * gradient / (length + 1e-12), rtol=1e-13, atol=0)


def test_vectors_alone_are_moved_as_by_the_global_norm() -> None:
    gradients, weights = [torch.tensor([3.0, 4.0])], [torch.tensor([100.0, 0.0])]
    adaptive, plain = [gradients[0].clone()], [gradients[0].clone()]
    AdaptiveNorm(0.5).to_offsets_(adaptive, weights, [0.5], norms_of(gradients))
    GlobalNorm(0.5).to_offsets_(plain, weights, [0.5], norms_of(gradients))
    assert torch.equal(adaptive[0], plain[0])


def test_scaling_the_weights_scales_the_offset() -> None:
    """What the method is for: with η = 0, w → c·w and g → g/c, the loss's symmetry, gives e → c·e."""
    gradients, weights = [random_tensors(0)[0]], [random_tensors(1)[0]]
    once, twice = [gradients[0].clone()], [gradients[0] / 7]
    AdaptiveNorm(0.5, eta=0).to_offsets_(once, weights, [0.5], norms_of(once))
    AdaptiveNorm(0.5, eta=0).to_offsets_(twice, [7 * weights[0]], [0.5], norms_of(twice))
    torch.testing.assert_close(twice[0], 7 * once[0])


def test_weights_are_left_alone_and_zero_gradients_stay() -> None:
    weights = random_tensors(1)
    before = [w.clone() for w in weights]
    results = [torch.zeros_like(w) for w in weights]
    AdaptiveNorm().to_offsets_(results, weights, [0.5] * 4, norms_of(results))
    assert not any(result.any() for result in results)
    assert all(torch.equal(w, b) for w, b in zip(weights, before, strict=True))


def test_mixed_precision_keeps_each_type() -> None:
    weights = [torch.randn(3, 4).bfloat16(), torch.randn(4)]
    gradients = [torch.randn(3, 4).bfloat16(), torch.randn(4)]
    results = [g.clone() for g in gradients]
    AdaptiveNorm(0.5).to_offsets_(results, weights, [0.5, 0.5], torch.stack([g.float().norm() for g in gradients]))
    assert [result.dtype for result in results] == [torch.bfloat16, torch.float32]
    t = weights[0].double().abs() + 0.01
    scaled = t * gradients[0].double()
    length = (scaled.square().sum() + gradients[1].double().square().sum()).sqrt()
    torch.testing.assert_close(results[0].double(), 0.5 * t * scaled / length, rtol=0.04, atol=1e-4)
    torch.testing.assert_close(results[1].double(), 0.5 * gradients[1].double() / length, rtol=0.01, atol=1e-5)
