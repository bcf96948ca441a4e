"""Invalid arguments are refused by name, and a refusal changes nothing."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_optimizer import LOMO, AdaLOMO
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, AdamW

import vsam
from vsam.trajectory import LogitMemory

NO_NUMBERS = ["0.5", None, True, [0.5], math.nan, math.inf, -math.inf, 10**400]
NUMBER = NO_NUMBERS
NOT_NEGATIVE = [*NO_NUMBERS, -0.1, -1]
POSITIVE = [*NOT_NEGATIVE, 0]
FRACTION = [*NO_NUMBERS, -0.1, 1.1, 1e100]
COUNT = ["5", None, True, 2.5, 1.0, math.nan, math.inf, -1]
POSITIVE_COUNT = [*COUNT, 0]

LENGTH = [value for value in POSITIVE_COUNT if value is not None]

VARIATION: dict[str, list[Any]] = {
    "alpha": NOT_NEGATIVE,
    "window": [*POSITIVE_COUNT, 1, 9],
    "slices": POSITIVE_COUNT,
    "start": COUNT,
    "initial_samples": [*POSITIVE, 0.5, 40.5, 1000],
    "min_samples": POSITIVE,
    "max_rate": [*FRACTION, 0],
    "watch": [value for value in POSITIVE_COUNT if value is not None],
    "seed": COUNT,
}

Table = dict[str, tuple[Callable[..., object], dict[str, list[Any]]]]

PARTS: Table = {
    "Every": (vsam.Every, {"k": POSITIVE_COUNT}),
    "GradientThreshold": (
        lambda **given: vsam.GradientThreshold(**{"total_steps": 100} | given),
        {"total_steps": LENGTH, "delta": [*FRACTION, 1], "low": NUMBER, "high": NUMBER},
    ),
    "Variation": (vsam.Variation, VARIATION),
    "ReleasedVariation": (vsam.ReleasedVariation, VARIATION),
    "GlobalNorm": (vsam.GlobalNorm, {"rho": NOT_NEGATIVE}),
    "AdaptiveNorm": (vsam.AdaptiveNorm, {"rho": NOT_NEGATIVE, "eta": NOT_NEGATIVE}),
    "RandomSubset": (vsam.RandomSubset, {"rho": NOT_NEGATIVE, "beta": [*FRACTION, 0], "seed": COUNT}),
    "Decayed": (vsam.Decayed, {"gamma": FRACTION, "floor": FRACTION}),
    "Orthogonal": (vsam.Orthogonal, {"scale": NOT_NEGATIVE}),
}


def make_base(**group: Any) -> SGD:
    return SGD([{"params": [nn.Parameter(torch.ones(2))], **group}], lr=0.1)


class Searching(SGD):
    """Evaluates the loss several times itself."""

    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        closure()
        return super().step(closure)


SHARED = make_base()

METHODS: Table = {
    "SAM": (lambda **given: vsam.SAM(make_base(), **given), {"rho": NOT_NEGATIVE, "every": POSITIVE_COUNT}),
    "ASAM": (lambda **given: vsam.ASAM(make_base(), **given), {"rho": NOT_NEGATIVE, "eta": NOT_NEGATIVE}),
    "LookSAM": (
        lambda **given: vsam.LookSAM(make_base(), **given),
        {"rho": NOT_NEGATIVE, "every": POSITIVE_COUNT, "scale": NOT_NEGATIVE},
    ),
    "AESAM": (
        lambda **given: vsam.AESAM(make_base(), **{"total_steps": 100} | given),
        {"rho": NOT_NEGATIVE, "total_steps": LENGTH, "delta": [*FRACTION, 1], "low": NUMBER, "high": NUMBER},
    ),
    "ESAM": (
        lambda **given: vsam.ESAM(make_base(), **given),
        {"rho": NOT_NEGATIVE, "beta": [*FRACTION, 0], "gamma": [*FRACTION, 0], "seed": COUNT},
    ),
    "VSAM": (
        lambda **given: vsam.VSAM(make_base(), **given),
        {**VARIATION, "rho": NOT_NEGATIVE, "gamma": [value for value in FRACTION if value is not None]},
    ),
    "VSAM-released": (
        lambda **given: vsam.VSAM(make_base(), variant="released", **given),
        {**VARIATION, "rho": NOT_NEGATIVE, "gamma": [value for value in FRACTION if value is not None]},
    ),
}

TRAJECTORY: dict[str, list[Any]] = {
    "temperature": POSITIVE,
    "weight": NOT_NEGATIVE,
    "start_epoch": [*(value for value in COUNT if value != -1), -2],
    "label_smoothing": FRACTION,
}

LOSSES: Table = {
    "LogitMemory": (
        lambda **given: LogitMemory(**{"num_examples": 4, "num_classes": 3, "lag": 1} | given),
        {"num_examples": POSITIVE_COUNT, "num_classes": [*POSITIVE_COUNT, 1], "lag": POSITIVE_COUNT},
    ),
    "SAFLoss": (
        lambda **given: vsam.SAFLoss(**{"num_examples": 4, "num_classes": 3} | given),
        {"num_examples": POSITIVE_COUNT, "num_classes": [*POSITIVE_COUNT, 1], "lag": POSITIVE_COUNT, **TRAJECTORY},
    ),
    "MESALoss": (
        lambda **given: vsam.MESALoss(nn.Linear(2, 3), **given),
        {"decay": [*FRACTION, 1], **TRAJECTORY},
    ),
}

CASES = [
    pytest.param(make, setting, value, id=f"{name}-{setting}-{value!r}")
    for name, (make, settings) in (PARTS | METHODS | LOSSES).items()
    for setting, values in settings.items()
    for value in values
]


@pytest.mark.parametrize(("make", "setting", "value"), CASES)
def test_a_setting_that_cannot_be_is_refused_by_name(make: Callable[..., object], setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{'every' if setting == 'k' else setting} (must|cannot) ") as caught:
        make(**{setting: value})
    words = str(caught.value)
    assert f"got {value}" in words or f"got {value!r}" in words
    assert words.endswith(".")


@pytest.mark.parametrize("make", [vsam.Variation, vsam.ReleasedVariation])
def test_a_window_that_slices_do_not_divide_is_refused_with_one_that_they_do(make: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"divisible by slices, got window=52 and slices=5.*Try window=50\.$"):
        make(window=52, slices=5)


@pytest.mark.parametrize("make", [vsam.Variation, vsam.ReleasedVariation])
def test_bounds_that_leave_no_room_are_refused(make: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"initial_samples must be between min_samples and max_rate"):
        make(min_samples=3, initial_samples=2)
    with pytest.raises(ValueError, match=r"max_rate"):
        make(max_rate=0.01)


@pytest.mark.parametrize("variant", ["Paper", "", None, 1])
def test_an_unknown_variant_is_refused(variant: Any) -> None:
    with pytest.raises(ValueError, match="variant must be 'paper' or 'released', got ") as caught:
        vsam.VSAM(make_base(), variant=variant)
    assert repr(variant) in str(caught.value)


@pytest.mark.parametrize(
    ("slot", "part", "remedy"),
    [
        ("when", vsam.Plain(), "between="),
        ("when", vsam.GlobalNorm(), "where="),
        ("where", vsam.Every(3), "when="),
        ("where", vsam.Decayed(), "between="),
        ("between", vsam.Always(), "when="),
        ("between", vsam.AdaptiveNorm(), "where="),
        ("when", "always", "vsam.when"),
        ("where", 0.05, "vsam.where"),
        ("between", vsam.Plain, "vsam.between"),
        ("when", 0, "vsam.when"),
        ("where", 0.0, "vsam.where"),
        ("between", False, "vsam.between"),
    ],
)
def test_a_part_that_does_not_answer_its_slots_question_is_refused(slot: str, part: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"^{slot} cannot be ") as caught:
        vsam.SharpnessAware(make_base(), **{slot: part})
    assert repr(part) in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        (SGD, r"got SGD\. Write:\n    base = "),
        (None, "got NoneType"),
        ([nn.Parameter(torch.ones(2))], "got Parameter"),
        ([], "empty list"),
        ((), "empty list"),
        ([make_base(), SGD], "got SGD"),
        ([make_base(), None], "got NoneType"),
        ([make_base(), vsam.SAM(make_base())], "SAM: .* nest"),
        ([SHARED, SHARED], "disjoint"),
        (vsam.SAM(make_base()), "SAM: .* nest"),
        (vsam.SharpnessAware(make_base()), "SharpnessAware: .* nest"),
        (LBFGS([nn.Parameter(torch.ones(2))]), "LBFGS .*closure"),
        ([make_base(), LBFGS([nn.Parameter(torch.ones(2))])], "LBFGS .*closure"),
        (Searching([nn.Parameter(torch.ones(2))]), "Searching .*closure"),
        (LOMO(nn.Linear(2, 1)), r"LOMO .*backward\(\)"),
        ([make_base(), AdaLOMO(nn.Linear(2, 1))], r"AdaLOMO .*backward\(\)"),
        (SGD([nn.Parameter(torch.ones(2))], lr=0.1, differentiable=True), "SGD .*differentiable"),
        ([make_base(), AdamW([nn.Parameter(torch.ones(2))], differentiable=True)], "AdamW .*differentiable"),
        (make_base(differentiable=True), "SGD .*differentiable"),
    ],
)
@pytest.mark.parametrize("method", [vsam.SharpnessAware, vsam.SAM, vsam.VSAM])
def test_what_cannot_be_a_base_is_refused(method: Any, base: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        method(base)


def test_a_base_may_have_a_scheduler_already() -> None:
    base = make_base()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(base, 0.5)
    optimizer = vsam.SAM(base)
    for parameter in base.param_groups[0]["params"]:
        optimizer.step(lambda parameter=parameter: parameter.sum().backward())  # type: ignore[misc]
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_a_model_that_is_not_the_bases_is_refused() -> None:
    with pytest.raises(ValueError, match="none of the base optimizer's parameters"):
        vsam.SAM(make_base(), model=nn.Linear(2, 1))
    with pytest.raises(ValueError, match=r"model must be a torch\.nn\.Module, got list"):
        vsam.SAM(make_base(), model=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("rho", NOT_NEGATIVE)
def test_a_groups_own_rho_is_checked(rho: Any) -> None:
    with pytest.raises(ValueError, match=r"^rho must "):
        vsam.SAM(make_base(rho=rho))


@pytest.mark.parametrize("rho", [-0.1, math.nan, "0.1"])
def test_a_group_that_is_refused_is_not_added(rho: Any) -> None:
    optimizer = vsam.SAM(make_base())
    with pytest.raises(ValueError, match=r"^rho must "):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "rho": rho})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("rho", [-0.1, math.nan, "0.1"])
def test_a_rho_that_became_wrong_while_training_stops_the_step(rho: Any) -> None:
    w = nn.Parameter(torch.ones(2))
    optimizer = vsam.SAM(SGD([w], lr=0.1))
    optimizer.param_groups[0]["rho"] = rho

    def closure() -> Tensor:
        loss = w.square().sum()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"^rho must "):
        optimizer.step(closure)
    assert torch.equal(w.detach(), torch.ones(2))
    assert optimizer.num_samples == 0
