"""ESAM's stochastic weight perturbation against its formula."""

import math
import random

import pytest
import torch

from vsam._step import foreach
from vsam.where import GlobalNorm, RandomSubset


def gradients(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(3, i + 1, generator=generator, dtype=torch.float64) for i in range(count)]


def offsets(where: GlobalNorm | RandomSubset, plain: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the perturbed weights that start at zero, which are e itself, not rounded by an addition."""
    weights = [torch.zeros_like(g) for g in plain]
    where.perturb_(weights, plain, [0.3] * len(plain), foreach.norm(plain))
    return weights


def test_kept_tensors_follow_the_formula_and_the_others_stay() -> None:
    plain, draws = gradients(12), random.Random(7)
    kept = [draws.random() < 0.4 for _ in plain]
    assert 0 < sum(kept) < 12
    norm = sum(float((g**2).sum()) for g, keep in zip(plain, kept, strict=True) if keep) ** 0.5
    for e, g, keep in zip(offsets(RandomSubset(0.3, beta=0.4, seed=7), plain), plain, kept, strict=True):
        expected = 0.3 / (norm + 1e-12) / 0.4 * g if keep else torch.zeros_like(g)
        torch.testing.assert_close(e, expected, rtol=1e-13, atol=0)


def test_gradients_are_left_alone_and_weights_stay_where_they_are_stored() -> None:
    weights, plain = [g + 1 for g in gradients(6)], gradients(6)
    storage = [w.data_ptr() for w in weights]
    RandomSubset(0.3, beta=1.0).perturb_(weights, plain, [0.3] * 6, foreach.norm(plain))
    assert [w.data_ptr() for w in weights] == storage
    assert not any(torch.equal(w, g + 1) for w, g in zip(weights, plain, strict=True))
    assert all(torch.equal(g, kept) for g, kept in zip(plain, gradients(6), strict=True))


def test_each_kept_tensor_has_its_own_radius() -> None:
    plain, rhos = gradients(3), [0.1, 0.0, 0.4]
    weights = [torch.zeros_like(g) for g in plain]
    RandomSubset(0.3, beta=1.0).perturb_(weights, plain, rhos, foreach.norm(plain))
    for weight, gradient, rho in zip(weights, plain, rhos, strict=True):
        torch.testing.assert_close(weight, rho * gradient / foreach.norm(plain), rtol=1e-11, atol=0)


def test_only_kept_tensors_decide_whether_the_gradient_is_finite() -> None:
    plain, draws = gradients(12), random.Random(7)
    kept = [draws.random() < 0.4 for _ in plain]
    plain[kept.index(False)].fill_(math.nan)
    assert [bool(e.any()) for e in offsets(RandomSubset(0.3, beta=0.4, seed=7), plain)] == kept
    plain[kept.index(True)][0, 0] = math.inf
    assert not any(e.any() for e in offsets(RandomSubset(0.3, beta=0.4, seed=7), plain))


def test_every_tensor_is_kept_with_probability_beta() -> None:
    where, counts = RandomSubset(0.3, beta=0.25, seed=1), torch.zeros(8)
    for _ in range(2000):
        counts += torch.tensor([float(e.abs().sum() > 0) for e in offsets(where, gradients(8))])
    # Where none of 8 is drawn, one is taken: that adds 0.75⁸/8 to each.
    expected = 2000 * (0.25 + 0.75**8 / 8)
    assert (counts - expected).abs().max() < 4 * (2000 * 0.25 * 0.75) ** 0.5


def test_at_least_one_tensor_is_kept() -> None:
    where = RandomSubset(0.3, beta=1e-9, seed=2)
    chosen = set()
    for _ in range(50):
        moved = [float(e.abs().sum()) > 0 for e in offsets(where, gradients(4))]
        assert sum(moved) == 1
        chosen.add(moved.index(True))
    assert chosen == {0, 1, 2, 3}


def test_beta_one_is_the_global_norm_bit_for_bit() -> None:
    plain = gradients(5)
    for ours, sam in zip(offsets(RandomSubset(0.3, beta=1.0), plain), offsets(GlobalNorm(0.3), plain), strict=True):
        assert torch.equal(ours, sam)


def test_draws_continue_from_the_saved_state() -> None:
    where = RandomSubset(0.3, beta=0.5, seed=3)
    offsets(where, gradients(6))
    state = where.state_dict()
    following = [offsets(where, gradients(6)) for _ in range(5)]
    other = RandomSubset(0.3, beta=0.5, seed=99)
    other.load_state_dict(state)
    for expected in following:
        assert all(torch.equal(a, b) for a, b in zip(offsets(other, gradients(6)), expected, strict=True))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": -1.0}, "rho must not be negative, got -1.0"),
        ({"beta": 0.0}, r"beta must be in \(0, 1\], got 0.0"),
        ({"beta": 1.5}, r"beta must be in \(0, 1\], got 1.5"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RandomSubset(**settings)
