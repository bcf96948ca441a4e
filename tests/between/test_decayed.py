"""Decayed adds γ^age · PSF, and stops where the authors' program does."""

import pytest
import torch
from torch import Tensor, nn

import vsam
from vsam import Decayed


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.7, 1.0])
def test_the_papers_weight_has_no_limit(gamma: float) -> None:
    between = Decayed(gamma)
    assert [between.weight(age) for age in range(60)] == [gamma**age for age in range(60)]


@pytest.mark.parametrize("gamma", [0.01, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0])
def test_the_released_weight_stops_at_the_sixth_power(gamma: float) -> None:
    expected, h = [], 1.0
    for _ in range(12):
        if h > gamma**6:
            h *= gamma
            expected.append(h)
        else:
            expected.append(0.0)
    between = Decayed(gamma, floor=gamma**6)
    assert [between.weight(age) for age in range(1, 13)] == expected
    assert between.weight(0) == 1
    if gamma == 1:
        assert not any(expected)
    else:
        assert expected[:6] == pytest.approx([gamma**age for age in range(1, 7)])
        assert not any(expected[7:]), "at the latest after a seventh step that rounding may allow"


def test_adds_the_memory_by_its_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients, memory = ([torch.randn(s, generator=generator).double() for s in ((3,), (2, 2))] for _ in range(2))
    before, kept = [g.clone() for g in gradients], [m.clone() for m in memory]
    Decayed(0.5).reuse_(gradients, memory, 3, lambda: torch.tensor(1.0))
    for g, b, m in zip(gradients, before, memory, strict=True):
        torch.testing.assert_close(g, b + 0.125 * m)
    assert all(torch.equal(m, k) for m, k in zip(memory, kept, strict=True)), "the memory itself must not decay"


def test_nothing_is_added_once_the_weight_is_gone() -> None:
    gradients = [torch.tensor([1.0])]
    Decayed(0.5, floor=0.25).reuse_(gradients, [torch.tensor([torch.inf])], 3, lambda: torch.tensor(1.0))
    assert float(gradients[0]) == 1


def test_gamma_zero_asks_for_no_memory() -> None:
    assert Decayed(0).num_buffers == Decayed(0).uses_psf == 0
    assert Decayed(0.1).num_buffers == Decayed(0.1).uses_psf == 1


@pytest.mark.parametrize(("floor", "num_reused"), [(0.0, 11), (0.5**6, 6)])
def test_the_base_gets_the_weakened_psf(floor: float, num_reused: int) -> None:
    """On a quadratic the PSF is known, and with it every step after the only sample."""
    a, rho, gamma = 3.0, 0.1, 0.5
    w = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = vsam.SharpnessAware(
        torch.optim.SGD([w], lr=0.01),
        when=vsam.Every(12),
        where=vsam.GlobalNorm(rho),
        between=Decayed(gamma, floor),
    )

    def closure() -> Tensor:
        loss = a * w.square().sum() / 2
        loss.backward()
        return loss

    for age in range(12):
        before = w.item()
        optimizer.step(closure)
        added = a * rho * gamma**age if age <= num_reused else 0.0
        assert w.item() == pytest.approx(before - 0.01 * (a * before + added), rel=1e-14)
    assert optimizer.num_samples == 1
