"""AdaptiveNorm moves by ρ·t²g/(‖t g‖ + 1e-12), with t = |w| + η on matrices and filters and 1 elsewhere."""

import math

import pytest
import torch
from torch import Tensor

from vsam import AdaptiveNorm, GlobalNorm, Where

SHAPES = [(3, 4), (5,), (2, 2, 3, 3), ()]


def random_tensors(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


WRONG = torch.tensor(math.pi)
"""In place of ‖g‖, which this part does not look at: its own norm is ‖t g‖."""


def offsets(where: Where, weights: list[Tensor], gradients: list[Tensor], rhos: list[float]) -> list[Tensor]:
    """Return the offset of the weights."""
    moved = [w.clone() for w in weights]
    where.perturb_(moved, gradients, rhos, WRONG)
    return [after - before for after, before in zip(moved, weights, strict=True)]


@pytest.mark.parametrize("eta", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("rhos", [[0.5] * 4, [0.5, 0.1, 0.0, 0.1]])
def test_the_formula(eta: float, rhos: list[float]) -> None:
    gradients, weights = random_tensors(0), random_tensors(1)
    results = offsets(AdaptiveNorm(0.5, eta), weights, gradients, rhos)
    units = [w.abs() + eta if w.ndim >= 2 else torch.ones_like(w) for w in weights]
    length = sum(float((t * g).square().sum()) for t, g in zip(units, gradients, strict=True)) ** 0.5
    for result, gradient, t, rho in zip(results, gradients, units, rhos, strict=True):
        torch.testing.assert_close(result, rho * t * t * gradient / (length + 1e-12), rtol=1e-13, atol=1e-15)


def test_vectors_alone_are_moved_as_by_the_global_norm() -> None:
    gradients, weights = [torch.tensor([3.0, 4.0])], [torch.tensor([100.0, 0.0])]
    adaptive, plain = [weights[0].clone()], [weights[0].clone()]
    AdaptiveNorm(0.5).perturb_(adaptive, gradients, [0.5], torch.tensor(5.0))
    GlobalNorm(0.5).perturb_(plain, gradients, [0.5], torch.tensor(5.0))
    assert torch.equal(adaptive[0], plain[0])
    assert not torch.equal(adaptive[0], weights[0])


def test_scaling_the_weights_scales_the_offset() -> None:
    """The method's purpose: with η = 0, w → c·w and g → g/c, the loss's symmetry, gives e → c·e."""
    gradients, weights = [random_tensors(0)[0]], [random_tensors(1)[0]]
    once = offsets(AdaptiveNorm(0.5, eta=0), weights, gradients, [0.5])
    twice = offsets(AdaptiveNorm(0.5, eta=0), [7 * weights[0]], [gradients[0] / 7], [0.5])
    torch.testing.assert_close(twice[0], 7 * once[0])


def test_zero_gradients_move_nothing() -> None:
    weights = random_tensors(1)
    AdaptiveNorm().perturb_(weights, [torch.zeros_like(w) for w in weights], [0.5] * 4, torch.zeros(()))
    assert all(torch.equal(w, kept) for w, kept in zip(weights, random_tensors(1), strict=True))


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("position", [0, 1])
def test_a_gradient_that_is_not_finite_moves_nothing(bad: float, position: int) -> None:
    weights, gradients = random_tensors(1), random_tensors(0)
    gradients[position].view(-1)[2] = bad
    AdaptiveNorm().perturb_(weights, gradients, [0.5] * 4, torch.tensor(bad))
    assert all(torch.equal(w, kept) for w, kept in zip(weights, random_tensors(1), strict=True))


@pytest.mark.parametrize("kept", [[0, 1, 2, 3], [0], [1], [1, 3]])
def test_gradients_are_left_alone_and_weights_stay_where_they_are_stored(kept: list[int]) -> None:
    weights, gradients = ([random_tensors(seed)[i] for i in kept] for seed in (1, 0))
    storage = [w.data_ptr() for w in weights]
    AdaptiveNorm().perturb_(weights, gradients, [0.5] * len(kept), WRONG)
    assert [w.data_ptr() for w in weights] == storage
    assert not any(torch.equal(w, random_tensors(1)[i]) for w, i in zip(weights, kept, strict=True))
    assert all(torch.equal(g, random_tensors(0)[i]) for g, i in zip(gradients, kept, strict=True))


def test_mixed_precision_keeps_each_type() -> None:
    weights = [random_tensors(1)[0].bfloat16(), random_tensors(1)[1].float()]
    gradients = [random_tensors(0)[0].bfloat16(), random_tensors(0)[1].float()]
    moved = [w.clone() for w in weights]
    AdaptiveNorm(0.5).perturb_(moved, gradients, [0.5, 0.5], WRONG)
    assert [weight.dtype for weight in moved] == [torch.bfloat16, torch.float32]
    t = weights[0].double().abs() + 0.01
    scaled = t * gradients[0].double()
    length = (scaled.square().sum() + gradients[1].double().square().sum()).sqrt()
    first, second = (w.double() for w in weights)
    # Of a weight of size 1, bfloat16 keeps 1/256; of the offset before that, as much in proportion.
    torch.testing.assert_close(moved[0].double(), first + 0.5 * t * scaled / length, rtol=0.004, atol=1e-3)
    torch.testing.assert_close(moved[1].double(), second + 0.5 * gradients[1].double() / length, rtol=1e-3, atol=1e-5)
