"""Settings that reduce a method to a simpler one do so to the bit, and on a quadratic PSF is ρ·A·g/‖g‖."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vsam
from contract_table import (
    BASES,
    BATCHES,
    LENGTH,
    Run,
    every_case,
    network,
    seed_everything,
    trained_by_base_alone,
)
from vsam import AdaptiveNorm, Always, Decayed, Every, GlobalNorm, Orthogonal, Plain, Variation


def _equal(left: nn.Module, right: nn.Module) -> bool:
    one, other = left.state_dict(), right.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one)


@every_case
def test_zero_radius_is_the_base_optimizer(method: str, base: str) -> None:
    run = Run(method, base, rho=0.0).go()
    assert run.optimizer.num_samples > 0
    assert _equal(run.model, trained_by_base_alone(BASES[base]))


def test_a_radius_is_not() -> None:
    assert not _equal(Run("sam", "sgd").go().model, trained_by_base_alone(BASES["sgd"]))


def _trained(base: str = "momentum", **parts: object) -> nn.Module:
    seed_everything(3)
    model = network()
    optimizer = vsam.SharpnessAware(BASES[base](model.parameters()), model=model, **parts)  # type: ignore[arg-type]
    for inputs, labels in BATCHES:

        def closure(inputs: Tensor = inputs, labels: Tensor = labels) -> Tensor:
            loss = functional.cross_entropy(model(inputs), labels)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


@pytest.mark.parametrize("where", [GlobalNorm(0.1), AdaptiveNorm(1.0)], ids=repr)
@pytest.mark.parametrize("between", [Plain(), Decayed(0.5), Orthogonal(0.5)], ids=repr)
def test_every_one_is_always(where: vsam.Where, between: vsam.Between) -> None:
    always = _trained(when=Always(), where=where, between=between)
    assert _equal(_trained(when=Every(1), where=where, between=between), always)
    assert _equal(_trained(when=Always(), where=where), always)


@pytest.mark.parametrize("between", [Decayed(0.0), Decayed(0.7, floor=1.0), Orthogonal(0.0)], ids=repr)
@pytest.mark.parametrize("when", [Every(4), Variation(0.5, 6, 3, 12, 2)], ids=["every", "variation"])
def test_without_weight_it_is_plain(when: vsam.When, between: vsam.Between) -> None:
    plain = _trained(when=when, between=Plain())
    assert _equal(_trained(when=when, between=between), plain)
    assert not _equal(_trained(when=when, between=Decayed(0.7)), plain)


def test_a_part_is_not_changed_by_the_optimizer_that_uses_it() -> None:
    when = Variation(0.5, 6, 3, 12, 2)
    before = when.state_dict()
    assert _equal(_trained(when=when), _trained(when=when))
    assert when.state_dict() == before


def _quadratic(rho: float, **parts: object) -> tuple[vsam.SharpnessAware, Tensor, nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(6, 6, dtype=torch.float64, generator=generator)
    matrix = root @ root.T + torch.eye(6, dtype=torch.float64)
    point = nn.Parameter(torch.randn(6, dtype=torch.float64, generator=generator))
    base = torch.optim.SGD([point], lr=0.01)
    return vsam.SharpnessAware(base, where=GlobalNorm(rho), **parts), matrix, point  # type: ignore[arg-type]


@pytest.mark.parametrize("rho", [1e-3, 0.05, 2.0])
def test_psf_on_a_quadratic(rho: float) -> None:
    optimizer, matrix, point = _quadratic(rho, when=Every(2), between=Decayed(0.5))
    for number in range(10):
        before = point.detach().clone()
        gradient = matrix @ before

        def closure() -> Tensor:
            loss = point @ matrix @ point / 2
            loss.backward()
            return loss

        optimizer.step(closure)
        if number % 2 == 0:
            psf = rho * matrix @ gradient / gradient.norm()
            memory = optimizer.state_dict()["sharpness"]["memory"][0]
            torch.testing.assert_close(memory, psf, rtol=1e-9, atol=1e-12)
        weight = 1.0 if number % 2 == 0 else 0.5
        torch.testing.assert_close(point.detach(), before - 0.01 * (gradient + weight * psf), rtol=1e-12, atol=1e-12)


def test_gradient_of_zero_is_no_obstacle() -> None:
    optimizer, matrix, point = _quadratic(0.1)
    point.data.zero_()

    def closure() -> Tensor:
        loss = point @ matrix @ point / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    assert torch.equal(point, torch.zeros(6, dtype=torch.float64))
    assert optimizer.num_skipped == 0


def test_length_of_the_table() -> None:
    assert len(BATCHES) == LENGTH
