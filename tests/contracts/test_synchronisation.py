"""How often a step makes the device wait: once for the finiteness flag, never where the base is fused."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import vsam
from contract_table import METHODS, ORDINARY, argument, every_method, losses_of

WAITS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal")


class _Lists(TorchFunctionMode):
    """Counts the tensors that are made lists, which no operator shows."""

    def __init__(self, names: Counter[str]) -> None:
        super().__init__()
        self._names = names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._names["tolist"] += func is torch.Tensor.tolist
        return func(*args, **(kwargs or {}))


class _Waits(TorchDispatchMode):
    """Counts whatever has to wait for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self._lists = _Lists(self.names)

    def __enter__(self) -> "_Waits":
        self._lists.__enter__()
        return super().__enter__()

    def __exit__(self, *reason: Any) -> None:
        super().__exit__(*reason)
        self._lists.__exit__(*reason)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split(".")[0]
        if name in WAITS:
            self.names[name] += 1
        return func(*args, **(kwargs or {}))


def _waits_of_each_step(method: str, make: Any, listen: bool = False, length: int = 24) -> list[int]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = METHODS[method](make(model.parameters()), model=model)
    if listen:
        optimizer.subscribe(lambda record: None)
    waits = []
    for number in range(length):
        with _Waits() as seen:
            optimizer.step(argument(method, partial(losses_of, model, number)))
        waits.append(seen.names.total())
    return waits


def _base_alone(make: Any) -> int:
    """What the base itself waits for in a step, such as Adam for its step count."""
    parameter = nn.Parameter(torch.ones(3))
    optimizer = make([parameter])
    waits = []
    for _ in range(3):
        parameter.grad = torch.ones(3)
        with _Waits() as seen:
            optimizer.step()
        waits.append(seen.names.total())
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
    allowed = 1 if method in ("looksam-5", "vsam", "vsam-released") else 0
    assert all(number <= allowed for i, number in enumerate(waits) if i > 0 and i not in ends), waits
    assert waits[0] == 1
    assert sum(waits) <= 1 + allowed * 5 + sum(waits[i] for i in ends)


def test_fused_base_waits_where_somebody_listens() -> None:
    assert all(_waits_of_each_step("sam", FUSED["sgd"], listen=True))


def test_looking_at_last_is_what_costs() -> None:
    point = nn.Parameter(torch.ones(2))
    optimizer = vsam.SAM(torch.optim.SGD([point], lr=0.1, fused=True))
    for _ in range(2):
        optimizer.step(lambda: point.square().sum().backward())
    with _Waits() as seen:
        record = optimizer.last
        assert record is optimizer.last
    assert 0 < seen.names.total() <= 3
    with _Waits() as seen:
        assert optimizer.last is record
    assert seen.names.total() == 0
