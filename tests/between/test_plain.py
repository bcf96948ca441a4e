"""Plain leaves the gradient alone and asks for no memory."""

import torch

from vsam import Plain


def test_the_gradient_stays_as_it_is() -> None:
    gradients = [torch.randn(3), torch.randn(2, 2)]
    before = [g.clone() for g in gradients]
    Plain().reuse_(gradients, [torch.ones(3), torch.ones(2, 2)], 1, lambda: torch.tensor(1.0))
    assert all(torch.equal(g, b) for g, b in zip(gradients, before, strict=True))
    assert not Plain().uses_psf
