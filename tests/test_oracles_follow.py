"""Every method follows its slow twin for hundreds of steps."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import oracles
import vsam
from oracles import flat, flat_batches, flat_gradient, is_matrix, smooth_network

STEPS = 250
RULE: dict[str, Any] = {"alpha": 0.4, "window": 20, "slices": 5, "start": 47, "seed": 3}
BOUNDS: dict[str, Any] = {"max_rate": 0.3, "initial_samples": 5, "min_samples": 2}
LAST = 2  # tensors: the last layer, with 8·4 + 4 coordinates
WATCHED = 36

Maker = Callable[[Any], Any]

# method → (the library's, given base and model; its twin, given the twin of the base)
METHODS: dict[str, tuple[Callable[..., vsam.SharpnessAware], Maker]] = {
    "sam": (lambda b, m: vsam.SAM(b, model=m, rho=0.1), lambda b: oracles.SAM(b, 0.1)),
    "sam-5": (lambda b, m: vsam.SAM(b, model=m, rho=0.1, every=5), lambda b: oracles.SAM(b, 0.1, every=5)),
    "sam-late": (
        lambda b, m: vsam.SAM(b, model=m, rho=0.1, last=0.4, total_steps=STEPS),
        lambda b: oracles.SAM(b, 0.1, first=151),
    ),
    "asam": (
        lambda b, m: vsam.ASAM(b, model=m, rho=0.6, eta=0.02),
        lambda b: oracles.ASAM(b, 0.6, 0.02, is_matrix()),
    ),
    "friendly-sam": (
        lambda b, m: vsam.FriendlySAM(b, model=m, rho=0.1, sigma=0.8, decay=0.7),
        lambda b: oracles.FriendlySAM(b, 0.1, sigma=0.8, decay=0.7),
    ),
    "every third × friendly": (
        lambda b, m: vsam.SharpnessAware(b, model=m, when=vsam.Every(3), where=vsam.Friendly(0.1)),
        lambda b: oracles.FriendlySAM(b, 0.1, sigma=1.0, decay=0.9, every=3),
    ),
    "msam": (
        lambda b, m: vsam.MSAM(b, model=m, rho=0.3),
        lambda b: oracles.MSAM(b, 0.3, sign=-1),
    ),
    "msam-adaptive": (
        lambda b, m: vsam.MSAM(b, model=m, rho=0.9, adaptive=True, eta=0.02),
        lambda b: oracles.AdaptiveMSAM(b, 0.9, 0.02, is_matrix()),
    ),
    "every fourth × displaced": (
        lambda b, m: vsam.SharpnessAware(
            b,
            model=m,
            when=vsam.Every(4),
            where=vsam.GlobalNorm(0.1),
            between=vsam.Displaced(vsam.Momentum(0.05, sign=1)),
        ),
        lambda b: oracles.MSAM(b, 0.05, sign=1, sam_rho=0.1, every=4),
    ),
    "gsam": (
        lambda b, m: vsam.GSAM(b, model=m, rho=0.1, alpha=0.7),
        lambda b: oracles.GSAM(b, 0.1, alpha=0.7),
    ),
    "every third × gsam": (
        lambda b, m: vsam.SharpnessAware(
            b, when=vsam.Every(3), where=vsam.GlobalNorm(0.1), between=vsam.SurrogateGap(0.7)
        ),
        lambda b: oracles.GSAM(b, 0.1, alpha=0.7, every=3),
    ),
    "wsam": (
        lambda b, m: vsam.WSAM(b, model=m, rho=0.02, gamma=0.8),
        lambda b: oracles.WSAM(b, 0.02, gamma=0.8),
    ),
    "looksam": (
        lambda b, m: vsam.LookSAM(b, model=m, rho=0.1, every=4, scale=0.7),
        lambda b: oracles.LookSAM(b, 0.1, every=4, scale=0.7),
    ),
    "ae-sam": (
        lambda b, m: vsam.AESAM(b, model=m, rho=0.1, total_steps=200),
        lambda b: oracles.AESAM(b, 0.1, total=200),
    ),
    "vsam": (
        lambda b, m: vsam.VSAM(b, model=m, rho=0.1, gamma=0.8, watch=LAST, **RULE),
        lambda b: oracles.VSAM(b, 0.1, gamma=0.8, watched=WATCHED, **RULE),
    ),
    "vsam-all-layers": (
        lambda b, m: vsam.VSAM(b, model=m, rho=0.1, gamma=1, watch=None, **BOUNDS, **RULE),
        lambda b: oracles.VSAM(b, 0.1, gamma=1, watched=164, **BOUNDS, **RULE),
    ),
    "vsam-a": (
        lambda b, m: vsam.VSAM(b, model=m, rho=0.1, gamma=0, watch=LAST, **RULE),
        lambda b: oracles.VSAM(b, 0.1, gamma=0, watched=WATCHED, **RULE),
    ),
    "vsam-released": (
        lambda b, m: vsam.VSAM(b, model=m, rho=0.1, gamma=0.8, watch=LAST, variant="released", **RULE),
        lambda b: oracles.ReleasedVSAM(b, 0.1, gamma=0.8, watched=WATCHED, **RULE),
    ),
    "vsam-a-released": (
        lambda b, m: vsam.VSAM(b, model=m, rho=0.1, gamma=0, watch=LAST, variant="released", **RULE),
        lambda b: oracles.ReleasedVSAM(b, 0.1, gamma=0, watched=WATCHED, **RULE),
    ),
}

BASES: dict[str, tuple[Callable[..., torch.optim.Optimizer], Callable[[], Any]]] = {
    "momentum": (
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
        lambda: oracles.SGD(0.05, 0.9, 1e-3),
    ),
    "adamw": (
        lambda p: torch.optim.AdamW(p, lr=0.003, weight_decay=0.1),
        lambda: oracles.AdamW(0.003, weight_decay=0.1),
    ),
}


def closure_of(model: nn.Module, inputs: Tensor, labels: Tensor) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        loss = cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    return closure


def is_close(value: float | None, expected: float | None, tolerance: float) -> bool:
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, rel_tol=tolerance, abs_tol=tolerance)


def follow(optimizer: vsam.SharpnessAware, model: nn.Module, twin: oracles.Twin, steps: int) -> None:
    w = flat(model)
    for inputs, labels in flat_batches(seed=5, count=steps):
        w = twin.step(w, lambda at, x=inputs, y=labels: flat_gradient(at, x, y))
        optimizer.step(closure_of(model, inputs, labels))
        record = optimizer.last
        assert record is not None
        assert record.sampled == twin.sampled[-1]
        assert record.age == twin.age
        told = (record.s, record.change_var, record.change_norm)
        assert all(is_close(value, expected, 1e-9) for value, expected in zip(told, twin.in_force, strict=True))
        torch.testing.assert_close(flat(model), w, rtol=0, atol=1e-10)
    assert optimizer.num_samples == sum(twin.sampled)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", METHODS)
def test_follows_its_twin(method: str, base: str) -> None:
    model = smooth_network(seed=1)
    (make, make_twin), (make_base, make_base_twin) = METHODS[method], BASES[base]
    twin = make_twin(make_base_twin())
    follow(make(make_base(model.parameters()), model), model, twin, STEPS)
    if not method.startswith(("sam", "asam", "friendly", "gsam", "wsam", "msam")):
        assert 0 < sum(twin.sampled) < STEPS, "the problem must show both kinds of steps"
    if method.startswith("vsam"):
        assert twin.in_force[0] != RULE.get("initial_samples", 1), "the problem must move s"


@pytest.mark.parametrize("method", ["sam", "asam"])
def test_each_group_has_its_own_radius_under_one_norm(method: str) -> None:
    model = smooth_network(seed=2)
    first, rest = list(model[0].parameters()), [*model[2].parameters(), *model[4].parameters()]
    base = torch.optim.SGD([{"params": first, "rho": 0.3}, {"params": rest}], lr=0.05)
    rho = torch.tensor([0.3] * 56 + [0.1] * 108, dtype=torch.float64)
    optimizer = vsam.SAM(base, rho=0.1) if method == "sam" else vsam.ASAM(base, rho=0.1)
    twin = oracles.SAM(oracles.SGD(0.05), rho)
    follow(optimizer, model, twin if method == "sam" else oracles.ASAM(oracles.SGD(0.05), rho, 0.01, is_matrix()), 50)


@pytest.mark.parametrize("method", ["sam", "looksam", "ae-sam", "vsam", "vsam-a", "vsam-released"])
def test_a_listener_hears_the_norms_of_every_step(method: str) -> None:
    model = smooth_network(seed=1)
    make, make_twin = METHODS[method]
    optimizer, twin = make(torch.optim.SGD(model.parameters(), lr=0.05), model), make_twin(oracles.SGD(0.05))
    records: list[vsam.StepRecord] = []
    optimizer.subscribe(records.append)
    w = flat(model)
    for number, (inputs, labels) in enumerate(flat_batches(seed=5, count=100), start=1):
        loss = oracles.flat_loss(w, inputs, labels)
        w = twin.step(w, lambda at, x=inputs, y=labels: flat_gradient(at, x, y))
        optimizer.step(closure_of(model, inputs, labels))
        record = records[-1]
        assert (record.step, record.skipped) == (number, False)
        assert float(record.loss) == pytest.approx(float(loss), rel=1e-9)
        assert record.grad_norm == pytest.approx(twin.grad_norm, rel=1e-9)
        assert is_close(record.psf_norm, twin.psf_norm, 1e-9)
    torch.testing.assert_close(flat(model), w, rtol=0, atol=1e-10)
