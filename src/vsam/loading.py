"""Checks of a state dict: it is loaded completely, or refused with the reason."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vsam import shards
from vsam.errors import check_not_negative
from vsam.history import History
from vsam.parts import Part, Where

__all__ = ["check_state"]

_ELEMENTWISE = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "z")
"""Entries of torch's and other optimizers that have the shape of their parameter."""


def check_state(
    state_dict: dict[str, Any], entry: str, parts: Sequence[Part], parameters: list[Tensor]
) -> tuple[History, dict[int, Tensor], dict[int, Tensor]]:
    """Return history, memory and averages of the entry if the whole state fits.

    The parts, which are copies, load their own state.
    """
    if entry not in state_dict:
        raise ValueError(
            f"state_dict has no {entry!r} entry, so a plain optimizer saved it. To start from it, load it into "
            "optimizer.base."
        )
    _check_base(state_dict, parameters)
    sharpness: dict[str, Any] = state_dict[entry]
    expected = {"parts", "states", "memory", *History.fields}
    if any(isinstance(part, Where) and part.keeps_memory for part in parts):
        expected.add("averages")
    if not isinstance(sharpness, dict) or not expected <= sharpness.keys():
        raise ValueError(f"state_dict's {entry!r} entry is damaged: it needs {', '.join(sorted(expected))}.")
    names = [type(part).__name__ for part in parts]
    if sharpness["parts"] != names:
        raise ValueError(f"state_dict was saved with the parts {sharpness['parts']}, but this optimizer has {names}.")
    for part, state in zip(parts, sharpness["states"], strict=True):
        try:
            part.load_state_dict(state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"state_dict's entry for {type(part).__name__} is damaged: {error}.") from error
    try:
        history = History.from_state_dict(sharpness)
    except ValueError as error:
        raise ValueError(f"state_dict's {entry!r} entry is damaged: {error}") from error
    memory, averages = (_memory(sharpness.get(name, {}), parameters) for name in ("memory", "averages"))
    return history, memory, averages


def _memory(memory: Any, parameters: list[Tensor]) -> dict[int, Tensor]:
    """The remembered tensors, with the device and dtype of their parameters."""
    if not isinstance(memory, dict) or not all(isinstance(value, Tensor) for value in memory.values()):
        raise ValueError("state_dict's memory is damaged: it must map parameter indices to tensors.")
    for i, value in memory.items():
        if not isinstance(i, int) or not 0 <= i < len(parameters) or value.shape != parameters[i].shape:
            raise ValueError(
                f"state_dict's memory has a tensor of shape {tuple(value.shape)} that does not fit parameter {i}."
            )
        if shards.groups_of([value]) != shards.groups_of([parameters[i]]):
            raise ValueError(
                f"state_dict's memory of parameter {i} is not sharded like the parameter. Save and load with "
                "torch.distributed.checkpoint and vsam.distributed.StatefulOptimizer(model, optimizer), which can "
                "change the number of processes."
            )
        if not value.is_floating_point() or not torch.isfinite(shards.local([value])[0]).all():
            raise ValueError(f"state_dict's memory of parameter {i} does not hold finite floating-point numbers.")
    kinds = {i: (parameters[i].device, parameters[i].dtype) for i in memory}
    return {i: value.detach().to(*kinds[i], copy=True) for i, value in memory.items()}


def _check_base(state_dict: dict[str, Any], parameters: list[Tensor]) -> None:
    """Refuse invalid radii, and buffers of the wrong shape, which torch would load."""
    for name, kind in (("state", dict), ("param_groups", list)):
        if not isinstance(state_dict.get(name), kind):
            raise ValueError(f"state_dict is damaged: its {name!r} must be a {kind.__name__}.")
    for group in state_dict["param_groups"]:
        check_not_negative("rho", group.get("rho", 0.0))
    for i, values in state_dict["state"].items():
        for name, value in values.items() if isinstance(values, dict) and isinstance(i, int) else ():
            if name in _ELEMENTWISE and isinstance(value, Tensor) and 0 <= i < len(parameters):
                shape = tuple(parameters[i].shape)
                if tuple(value.shape) != shape:
                    raise ValueError(
                        f"state_dict has a {name} of shape {tuple(value.shape)} for parameter {i} of shape {shape}: "
                        "it was saved from another model's optimizer."
                    )
