"""The smooth problem: what the lemma assumes of it holds, and what it assumes of the PSF does not."""

import math

import pytest
import torch

from vsam.lab.study.convergence.smooth import SmoothProblem


@pytest.fixture(scope="module")
def problem():
    return SmoothProblem.from_images(200)


def weights_of_size(scale, seed=0):
    return scale * torch.randn(50, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_features_have_length_one_and_targets_one_class(problem):
    assert problem.features.shape == (200, 50)
    assert torch.allclose(problem.features.norm(dim=1), torch.ones(200, dtype=torch.float64))
    assert problem.targets.sum(1).eq(1).all()
    assert problem.features.dtype == torch.float64


def test_gradients_are_those_of_finite_differences(problem):
    weights, direction, width = weights_of_size(1.0), weights_of_size(1.0, seed=1), 1e-6
    slope = (problem.loss(weights + width * direction) - problem.loss(weights - width * direction)) / (2 * width)
    plain, _ = problem.gradients(weights, 0.0)
    assert float((plain * direction).sum()) == pytest.approx(float(slope), rel=1e-7)


def test_the_second_gradient_is_that_at_the_worst_nearby_point(problem):
    weights = weights_of_size(1.0)
    plain, sharp = problem.gradients(weights, 0.3)
    expected, _ = problem.gradients(weights + 0.3 * plain / plain.norm(), 0.0)
    assert torch.allclose(sharp, expected, rtol=1e-9)
    assert not torch.allclose(sharp, plain, rtol=1e-3)
    assert weights.requires_grad is False


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 100.0])
def test_loss_and_gradients_are_bounded_for_any_weights_and_batch(problem, scale):
    generator = torch.Generator().manual_seed(1)
    for seed in range(5):
        weights = weights_of_size(scale, seed)
        batch = problem.draw(1, generator)
        assert 0 <= float(batch.loss(weights)) <= 2
        assert float(batch.gradients(weights, 0.0)[0].norm()) <= SmoothProblem.GRADIENT_BOUND


def test_one_image_of_two_classes_has_a_gradient_in_closed_form():
    # L = 2q² for the wrong class's probability q, so each logit's derivative is ±4q²(1 − q), largest at q = 2/3.
    one = SmoothProblem(torch.ones(1, 1, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    weights = torch.tensor([[0.0, math.log(2)]], dtype=torch.float64)
    assert float(one.loss(weights)) == pytest.approx(8 / 9)
    assert float(one.gradients(weights, 0.0)[0].norm()) == pytest.approx(math.sqrt(2) * 16 / 27)


def test_the_loss_is_not_convex(problem):
    # Along a line on which a wrong class wins, the middle lies above the chord.
    weights = torch.zeros(50, 10, dtype=torch.float64)
    weights[-1, 0] = 40.0
    middle = float(problem.loss(weights / 2))
    assert middle > float(problem.loss(weights) + problem.loss(0 * weights)) / 2 + 0.1


def test_gradients_of_batches_are_unbiased_and_their_psf_is_not(problem):
    weights, rho = weights_of_size(3.0), 2.0
    generator = torch.Generator().manual_seed(0)
    plain, sharp = problem.gradients(weights, rho)
    plains, psfs = [], []
    for _ in range(800):
        found = problem.draw(16, generator).gradients(weights, rho)
        plains.append(found[0])
        psfs.append(found[1] - found[0])

    def off(values, expected):
        """How far the mean is from what is expected, in standard errors of a number, squared and averaged."""
        stacked = torch.stack(values)
        errors = stacked.std(0) / math.sqrt(len(values))
        used = errors > 0
        return float((((stacked.mean(0) - expected) / errors)[used] ** 2).mean())

    assert off(plains, plain) < 2
    assert off(psfs, sharp - plain) > 10
