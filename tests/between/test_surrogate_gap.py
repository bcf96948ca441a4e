"""SurrogateGap subtracts the part of g that is orthogonal to gs."""

import pytest
import torch

from vsam import SurrogateGap


def test_changes_the_gradient_as_the_formula_says() -> None:
    torch.manual_seed(0)
    g, gs = torch.randn(9, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    expected = gs - 0.3 * (g - (g @ gs) / (gs @ gs) * gs)
    sharp, psf = [gs[:4].clone(), gs[4:].clone()], [(gs - g)[:4], (gs - g)[4:]]
    SurrogateGap(0.3).at_sample(sharp, psf, torch.tensor(1.0))
    torch.testing.assert_close(torch.cat(sharp), expected)


def test_a_sharp_gradient_of_zero_is_no_obstacle() -> None:
    sharp = [torch.zeros(3)]
    SurrogateGap(0.5).at_sample(sharp, [torch.tensor([1.0, 2.0, 3.0])], torch.tensor(1.0))
    assert sharp[0].tolist() == [0.5, 1.0, 1.5]  # −α·g, all of which is orthogonal to nothing


def test_without_weight_it_is_plain() -> None:
    assert not SurrogateGap(0).uses_psf
    assert SurrogateGap().uses_psf
    assert SurrogateGap(0).describe() == "uses the plain gradient in between"


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha must not be negative"):
        SurrogateGap(-1)
