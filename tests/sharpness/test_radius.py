"""The radius at which SAM's perturbation raises the loss by a fraction."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vsam
from curved_net import batches, loss, net
from vsam.sharpness import measure, radius

SCALES = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)


def at(*weights: float) -> nn.Linear:
    model = nn.Linear(len(weights), 1, bias=False).double()
    model.weight.data.copy_(torch.tensor([weights]))
    return model


def bowl(model: nn.Module, batch: Tensor) -> Tensor:
    """1 + ½ (w − b)ᵀ A (w − b) with A diagonal; the batch holds copies of b."""
    weight: Tensor = model.weight  # type: ignore[assignment]
    return 1 + 0.5 * (SCALES * (weight - batch[0]).square()).sum()


def closed_form(weights: list[float], given: list[Tensor], rise: float) -> float:
    """Solve the mean of ρ‖g‖ + ½ ρ² gᵀAg/‖g‖² = rise · L over the samples for ρ."""
    sums = torch.zeros(3, dtype=torch.float64)
    for batch in given:
        offset = torch.tensor(weights, dtype=torch.float64) - batch[0]
        g = SCALES * offset
        curvature = (SCALES * g * g).sum() / (g * g).sum()
        sums += len(batch) * torch.stack([curvature / 2, g.norm(), -rise * (1 + 0.5 * (SCALES * offset**2).sum())])
    a, b, c = sums.tolist()
    return (-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)


@pytest.mark.parametrize("rise", [1e-4, 0.05, 1.0, 50.0])
def test_in_a_bowl_it_is_the_closed_form(rise: float) -> None:
    points = [(2, [0.5, 0.0, 1.0]), (5, [-1.0, 3.0, 0.0]), (1, [0.0, 0.0, -2.0])]
    given = [torch.tensor([point], dtype=torch.float64).repeat(count, 1) for count, point in points]
    weights = [1.0, 2.0, -1.0]
    expected = closed_form(weights, given, rise)
    assert radius(at(*weights), bowl, given, rise, tolerance=1e-11) == pytest.approx(expected, rel=1e-9)
    assert radius(at(*weights), bowl, given, rise) == pytest.approx(expected, rel=2e-2)


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_step_at_the_radius_records_the_rise(adaptive: bool) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Tanh(), nn.Linear(6, 3)
    model, batch = nn.Sequential(*layers).double(), batches()[0]
    rho = radius(model, loss, [batch], rise=0.1, adaptive=adaptive, tolerance=1e-9)
    method = vsam.ASAM if adaptive else vsam.SAM
    optimizer = method(torch.optim.SGD(model.parameters(), lr=0.1), model=model, rho=rho)

    def closure() -> Tensor:
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)
    assert optimizer.last is not None
    assert optimizer.last.rise == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_it_agrees_with_a_measurement_at_that_radius(size: float, dtype: torch.dtype) -> None:
    """Also if it is far from the radius that is tried first."""
    model = net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(size)
    given = [(inputs.to(dtype) / size, targets) for inputs, targets in batches()]
    rho = radius(model.to(dtype), loss, given, rise=0.2)
    found = measure(model, loss, given, rho, what="ascent", mode="train")
    assert found.batch_ascent is not None
    assert found.batch_ascent.value / found.loss == pytest.approx(0.2, rel=0.011)


def test_it_is_the_first_radius_where_there_are_several() -> None:
    def wave(model: nn.Module, batch: Tensor) -> Tensor:
        weight: Tensor = model.weight  # type: ignore[assignment]
        return 2 + torch.sin(weight).sum()

    found = radius(at(0.0), wave, [torch.ones(1)], rise=0.25, tolerance=1e-10)
    assert found == pytest.approx(math.asin(0.5), rel=1e-8)


def bounded(model: nn.Module, batch: Tensor) -> Tensor:
    weight: Tensor = model.weight  # type: ignore[assignment]
    return 10 + torch.tanh(weight).sum()


def jumping(model: nn.Module, batch: Tensor) -> Tensor:
    weight: Tensor = model.weight  # type: ignore[assignment]
    return 1 + 1e-6 * weight.sum() + (weight.detach() > 0.3).sum()


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (bowl, {"rise": 0.0}, "rise must be positive"),
        (bowl, {"rise": -0.1}, "rise must be positive"),
        (bowl, {"rise": math.nan}, "rise must be finite"),
        (bowl, {"rise": True}, "rise must be a number"),
        (bowl, {"tolerance": 0.0}, "tolerance must be positive"),
        (bowl, {"mode": "training"}, "mode must be"),
        (lambda model, batch: bowl(model, batch) - 100, {}, "above zero"),
        (lambda model, batch: bowl(model, batch) * math.nan, {}, "finite and above zero"),
        (lambda model, batch: bowl(model, batch).detach(), {}, "does not depend"),
        (lambda model, batch: bowl(model, batch) * 0 + 1, {}, "gradient is zero"),
        (bounded, {"rise": 0.5}, r"at most 26\.25%"),
        (jumping, {"rise": 0.5}, "jumps"),
        (lambda model, batch: bowl(model, batch).sqrt() + (0 * model.weight).sum().sqrt(), {}, "not finite"),
    ],
)
def test_what_has_no_radius_is_refused(function: Any, options: dict[str, Any], said: str) -> None:
    model = at(0.1, 0.0, 0.2)
    with pytest.raises(ValueError, match=said):
        radius(model, function, [torch.zeros(1, 3, dtype=torch.float64)], **options)
    assert model.weight.tolist() == at(0.1, 0.0, 0.2).weight.tolist()


def test_a_loss_that_cannot_be_repeated_is_refused() -> None:
    own = torch.Generator().manual_seed(0)

    def noisy(model: nn.Module, batch: Tensor) -> Tensor:
        return bowl(model, batch) * (1 + 0.1 * torch.rand((), generator=own))

    with pytest.raises(ValueError, match="generators"):
        radius(at(0.1, 0.0, 0.2), noisy, [torch.zeros(1, 3, dtype=torch.float64)])


@pytest.mark.parametrize(("given", "said"), [([], "empty"), (iter([torch.zeros(1, 3)]), "more than once")])
def test_it_needs_batches_that_can_be_read_again(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        radius(at(0.1, 0.0, 0.2), bowl, given)
