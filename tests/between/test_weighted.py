"""Weighted gives the base optimizer g + (γ/(1 − γ))·PSF."""

import pytest
import torch

from vsam import Weighted


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.9])
def test_changes_the_gradient_as_the_formula_says(gamma: float) -> None:
    torch.manual_seed(0)
    g, gs = torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    sharp = [gs.clone()]
    Weighted(gamma).at_sample(sharp, [gs - g], g.norm())
    torch.testing.assert_close(sharp[0], g + gamma / (1 - gamma) * (gs - g))


def test_a_half_is_sam() -> None:
    assert not Weighted(0.5).uses_psf
    assert Weighted(0.5).describe() == "uses the plain gradient in between"
    assert "weighs the PSF by 9" in Weighted(0.9).describe()


@pytest.mark.parametrize("gamma", [-0.1, 1.0, 2])
def test_a_weight_that_cannot_be_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\)"):
        Weighted(gamma)
