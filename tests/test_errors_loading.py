"""A state that does not fit is refused with words, and changes nothing."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import vsam


def trained(make: Callable[..., vsam.SharpnessAware], width: int = 3, num_layers: int = 2) -> vsam.SharpnessAware:
    """An optimizer in the middle of its work."""
    torch.manual_seed(width)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(num_layers)))
    optimizer = make(SGD(model.parameters(), lr=0.1, momentum=0.9), model=model)

    def closure() -> Tensor:
        loss = model(torch.ones(2, width)).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return optimizer


def make_vsam(base: SGD, model: nn.Module) -> vsam.SharpnessAware:
    return vsam.VSAM(base, model=model, start=2)


def make_sam(base: SGD, model: nn.Module) -> vsam.SharpnessAware:
    return vsam.SAM(base, model=model)


def make_released(base: SGD, model: nn.Module) -> vsam.SharpnessAware:
    return vsam.VSAM(base, model=model, start=2, variant="released")


def without(*path: str) -> dict[str, Any]:
    """A saved state that lacks an entry."""
    state = copy.deepcopy(trained(make_vsam, width=3).state_dict())
    inner = state
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return state


def changed(value: Any, *path: Any) -> dict[str, Any]:
    """A saved state with another value somewhere."""
    state = copy.deepcopy(trained(make_vsam).state_dict())
    inner: Any = state
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return state


def without_part_state() -> dict[str, Any]:
    state = copy.deepcopy(trained(make_vsam).state_dict())
    del state["sharpness"]["states"][0]["generator"]
    return state


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "another method": (
        lambda: trained(make_sam).state_dict(),
        r"saved with the parts \['Always', 'GlobalNorm', 'Plain'\]",
    ),
    "another variant": (lambda: trained(make_released).state_dict(), "ReleasedVariation"),
    "a plain optimizer": (
        lambda: trained(make_vsam).base.state_dict(),
        "no 'sharpness' entry.*load it into optimizer.base",
    ),
    "wrong shapes": (
        lambda: trained(make_vsam, width=4).state_dict(),
        r"momentum_buffer of shape \(4, 4\) for parameter 0 of shape \(3, 3\)",
    ),
    "wrong shapes in the memory": (
        lambda: changed(torch.zeros(4, 4), "sharpness", "memory", 0),
        r"tensor of shape \(4, 4\) that does not fit parameter 0",
    ),
    "a memory of nobody": (lambda: changed(torch.zeros(3), "sharpness", "memory", 4), "does not fit parameter 4"),
    "a memory by name": (lambda: changed(torch.zeros(3, 3), "sharpness", "memory", "0"), "does not fit parameter 0"),
    "a memory that is not finite": (
        lambda: changed(torch.full((3, 3), torch.nan), "sharpness", "memory", 0),
        "memory of parameter 0 does not hold finite floating-point numbers",
    ),
    "a memory of whole numbers": (
        lambda: changed(torch.zeros(3, 3, dtype=torch.int64), "sharpness", "memory", 0),
        "memory of parameter 0 does not hold finite floating-point numbers",
    ),
    "a memory without tensors": (lambda: changed([0.0], "sharpness", "memory", 0), "memory is damaged"),
    "no dict as memory": (lambda: changed([], "sharpness", "memory"), "memory is damaged"),
    "no dict": (lambda: changed([], "sharpness"), "'sharpness' entry is damaged"),
    "a counter that cannot be": (lambda: changed(-1, "sharpness", "num_steps"), "num_steps must be at least 0, got -1"),
    "too many samples": (lambda: changed(9, "sharpness", "num_samples"), "num_samples must not be above num_steps=3"),
    "an age before the first step": (lambda: changed(3, "sharpness", "age"), "age must be below num_steps=3, got 3"),
    "a rule that cannot be": (
        lambda: changed(float("nan"), "sharpness", "states", 0, "s"),
        "s must be finite",
    ),
    "a radius that cannot be": (lambda: changed(-0.1, "param_groups", 0, "rho"), "rho must not be negative, got -0.1"),
    "more groups": (lambda: changed([{}, {}], "param_groups"), "group"),
    "groups without parameters": (lambda: changed([{"lr": 0.1, "params": []}], "param_groups"), "size"),
    "more tensors": (lambda: trained(make_vsam, num_layers=3).state_dict(), "parameter"),
    "fewer tensors": (lambda: trained(make_vsam, num_layers=1).state_dict(), "parameter"),
    **{
        f"no {name}": (lambda name=name: without("sharpness", name), name)  # type: ignore[misc]
        for name in ("parts", "states", "memory", "age", "num_steps", "num_samples", "num_skipped")
    },
    "no part's state": (without_part_state, "generator"),
    "nothing": (dict, "sharpness"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    make_state, words = REFUSED[name]
    state, optimizer = make_state(), trained(make_vsam)
    before, kept = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(state)
    weights = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]
    optimizer.param_groups[0]["lr"] = before["param_groups"][0]["lr"] = 0.25
    error: Exception | None = None
    try:
        optimizer.load_state_dict(state)
    except Exception as caught:
        error = caught
    assert is_same(optimizer.state_dict(), before)
    assert is_same(state, kept)
    assert is_same([p.detach() for group in optimizer.param_groups for p in group["params"]], weights)
    assert isinstance(error, ValueError), repr(error)
    assert re.search(words, str(error))


def test_the_state_of_the_same_method_is_taken() -> None:
    state, optimizer = trained(make_vsam).state_dict(), trained(make_vsam)
    optimizer.param_groups[0]["lr"] = 0.25
    optimizer.load_state_dict(state)
    assert is_same(optimizer.state_dict(), state)


def is_same(one: Any, other: Any) -> bool:
    """Equality that looks into tensors, and takes what is not a number for equal to itself."""
    if isinstance(one, Tensor):
        is_alike = isinstance(other, Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return is_alike and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other) or (one != one and other != other)
