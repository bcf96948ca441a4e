"""Device syncs of a step: one for the finiteness flag, none with a fused base."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import vsam
from benchmarks.counts import count_operators, count_syncs
from contract_table import METHODS, ORDINARY, argument, every_method, losses_of


def _waits(action: Callable[[], object]) -> int:
    return count_syncs(count_operators(action))


def _waits_of_each_step(
    method: str, make: Any, listen: bool = False, length: int = 24, guard: bool = True
) -> list[int]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = METHODS[method](make(model.parameters()), model=model, guard=guard)
    if listen:
        optimizer.subscribe(lambda record: None)
    waits = []
    for number in range(length):
        closure = argument(method, partial(losses_of, model, number))
        waits.append(_waits(partial(optimizer.step, closure)))
    return waits


def _base_alone(make: Any) -> int:
    """Return the syncs of the base itself, such as Adam's for its step count."""
    parameter = nn.Parameter(torch.ones(3))
    optimizer = make([parameter])
    waits = []
    for _ in range(3):
        parameter.grad = torch.ones(3)
        waits.append(_waits(optimizer.step))
    return waits[-1]


@every_method
@pytest.mark.parametrize("base", ["momentum", "adamw"])
def test_ordinary_base(method: str, base: str) -> None:
    own = 6 * _base_alone(ORDINARY[base])  # six tensors
    waits = [number - own for number in _waits_of_each_step(method, ORDINARY[base])]
    allowed = 1 + (method == "ae-sam")
    ends = _window_ends(method)  # there all waiting norms are fetched at once
    assert all(number <= allowed for i, number in enumerate(waits) if i not in ends), waits
    assert waits[0] >= 1  # or nothing was counted


def _window_ends(method: str) -> list[int]:
    released = [i for i in range(12, 24) if (i + 2 - 12) % 6 == 0]
    ends = [i for i in range(24) if (i + 1) % 6 == 0]
    return [] if not method.startswith("vsam") else ends + released if method == "vsam-released" else ends


FUSED = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
}


@pytest.mark.parametrize("method", [name for name in METHODS if name != "ae-sam"])  # which waits to decide
@pytest.mark.parametrize("base", FUSED)
def test_fused_base(method: str, base: str) -> None:
    waits = _waits_of_each_step(method, FUSED[base])
    ends = _window_ends(method)
    # What reuses a sample has to know how old it is: at the first plain step, whether it counted at all.
    allowed = 1 if method in ("looksam-5", "budget", "vsam", "vsam-released") else 0
    assert all(number <= allowed for i, number in enumerate(waits) if i > 0 and i not in ends), waits
    assert waits[0] == 1
    num_samples = 10 if method == "budget" else 5  # outside the start of vSAM's rule
    assert sum(waits) <= 1 + allowed * num_samples + sum(waits[i] for i in ends)


def test_fused_base_waits_where_somebody_listens() -> None:
    assert all(_waits_of_each_step("sam", FUSED["sgd"], listen=True))


def test_looking_at_last_is_what_costs() -> None:
    point = nn.Parameter(torch.ones(2))
    optimizer = vsam.SAM(torch.optim.SGD([point], lr=0.1, fused=True))
    for _ in range(2):
        optimizer.step(lambda: point.square().sum().backward())
    assert 0 < _waits(lambda: optimizer.last) <= 3
    record = optimizer.last
    assert _waits(lambda: optimizer.last) == 0
    assert optimizer.last is record


@pytest.mark.parametrize("method", ["sam", "sam-5", "looksam-5"])
@pytest.mark.parametrize("make", [ORDINARY["momentum"], FUSED["sgd"]])
def test_without_a_guard_nobody_waits(method: str, make: Any) -> None:
    assert sum(_waits_of_each_step(method, make, guard=False)) == 0
