"""Orthogonal keeps gv = gs − (⟨gs, g⟩/‖g‖²) g and adds λ·(‖g‖/‖gv‖)·gv."""

import pytest
import torch
from torch import Tensor

from vsam import Orthogonal

SHAPES = [(3, 4), (5,), (2, 2, 3, 3)]


def random_tensors(seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.double().flatten() for tensor in tensors])


def remembered(between: Orthogonal, g: list[Tensor], gs: list[Tensor]) -> list[Tensor]:
    memory = [sharp - plain for sharp, plain in zip(gs, g, strict=True)]
    norm = torch.cat([t.flatten().float() if t.dtype == torch.bfloat16 else t.flatten() for t in g]).norm()
    found = between.at_sample(gs, memory, norm)
    assert found is not None
    return found


@pytest.mark.parametrize("distance", [1.0, 1e-3, 1e-6])
def test_remembers_the_direction_of_the_orthogonal_part(distance: float) -> None:
    g = random_tensors(0)
    gs = [plain + distance * noise for plain, noise in zip(g, random_tensors(1), strict=True)]
    sharp_before = [t.clone() for t in gs]
    memory = flat(remembered(Orthogonal(0.1), g, gs))
    gv = flat(gs) - flat(gs) @ flat(g) / (flat(g) @ flat(g)) * flat(g)
    torch.testing.assert_close(memory, gv / gv.norm(), rtol=1e-12 / distance, atol=1e-14 / distance)
    assert abs(float(memory @ flat(g)) / float(flat(g).norm())) < 1e-14 / distance
    assert all(torch.equal(t, b) for t, b in zip(gs, sharp_before, strict=True)), "the base gets gs itself"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_memory_is_orthogonal_in_low_precision_too(dtype: torch.dtype) -> None:
    g = random_tensors(0, dtype)
    gs = [plain + 0.3 * noise for plain, noise in zip(g, random_tensors(1, dtype), strict=True)]
    memory = flat(remembered(Orthogonal(0.1), g, gs))
    tolerance = 8 * torch.finfo(dtype).eps
    assert abs(float(memory @ flat(g)) / float(flat(g).norm())) < tolerance
    assert float(memory.norm()) == pytest.approx(1, abs=tolerance)


def test_adds_the_direction_at_the_gradients_own_length() -> None:
    gradients, memory = random_tensors(2), random_tensors(3)
    before, kept = flat(gradients), flat(memory)
    for _ in range(2):  # the memory may be used again and again
        again = [g.clone() for g in gradients]
        Orthogonal(0.7).reuse_(again, memory, 1, flat(gradients).norm)
        torch.testing.assert_close(flat(again), before + 0.7 * before.norm() * kept)
    assert torch.equal(flat(memory), kept)


@pytest.mark.parametrize(("dtype", "noise"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_an_orthogonal_part_of_rounding_noise_adds_nothing(dtype: torch.dtype, noise: float) -> None:
    def memory(size: float) -> Tensor:
        g, gs = torch.tensor([1.0, 0.0], dtype=dtype), torch.tensor([1.0, size], dtype=dtype)
        return remembered(Orthogonal(0.1), [g], [gs])[0]

    assert not memory(0.9 * noise).any()
    torch.testing.assert_close(memory(1.1 * noise), torch.tensor([0.0, 1.0], dtype=dtype), rtol=0, atol=1e-5)


def test_parallel_gradients_add_nothing() -> None:
    g = random_tensors(0)
    assert not flat(remembered(Orthogonal(0.7), g, [1.5 * t for t in g])).any()


def test_gradients_of_zero_are_no_trouble() -> None:
    zeros = [torch.zeros_like(t) for t in random_tensors(0)]
    assert not flat(remembered(Orthogonal(0.7), zeros, zeros)).any()


def test_scale_zero_asks_for_no_memory() -> None:
    assert Orthogonal(0).num_buffers == Orthogonal(0).uses_psf == 0
    assert Orthogonal(0.1).uses_psf
