"""Checks of a state dict: it is loaded completely, or refused with the reason."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vsam._step.gradients import Memory
from vsam._step.misuse import warn_caller
from vsam._step.parameters import complete_radii, own_rho
from vsam._step.records import COUNTERS, Records
from vsam.bases import bases_of
from vsam.checks import check_count, check_not_negative
from vsam.distributed import shards
from vsam.parts import Where

_ELEMENTWISE = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "z")
"""Entries of torch's and other optimizers that have the shape of their parameter."""


def save(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer's entry of its state dict, in plain types and tensors."""
    parts, parameters = optimizer._parts(), optimizer._gradients.all.parameters
    averages = {"averages": optimizer._averages.by_index(parameters)} if optimizer.where.num_buffers else {}
    return {
        "parts": [type(part).__name__ for part in parts],
        "states": [part.state_dict() for part in parts],
        "memory": optimizer._memory.by_index(parameters),
        **averages,
        **optimizer._records.counters(),
    }


def check_state(optimizer: Any, state_dict: dict[str, Any]) -> Callable[[], None]:
    """Refuse a state that does not fit, without changing anything. Return a function that loads the entry."""
    entry, base, parts = optimizer.entry, optimizer.base, copy.deepcopy(optimizer._parts())
    if entry not in state_dict:
        raise ValueError(
            f"state_dict has no {entry!r} entry, so a plain optimizer saved it. To start from it, load it into "
            "optimizer.base."
        )
    parameters = [parameter for group in base.param_groups for parameter in group["params"]]
    _check_base(state_dict, parameters, base)
    sharpness: dict[str, Any] = state_dict[entry]
    expected = {"parts", "states", "memory", *COUNTERS}
    if any(isinstance(part, Where) and part.num_buffers for part in parts):
        expected.add("averages")
    if not isinstance(sharpness, dict) or not expected <= sharpness.keys():
        raise ValueError(f"state_dict's {entry!r} entry is damaged: it needs {', '.join(sorted(expected))}.")
    names = [type(part).__name__ for part in parts]
    if sharpness["parts"] != names:
        raise ValueError(f"state_dict was saved with the parts {sharpness['parts']}, but this optimizer has {names}.")
    try:
        for part, state in zip(parts, sharpness["states"], strict=True):
            part.load_state_dict(state)
        counters = _counters(sharpness)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"state_dict's {entry!r} entry is damaged: {error}") from error
    memory, averages = (_memory(sharpness.get(name, {}), parameters) for name in ("memory", "averages"))

    def load() -> None:
        complete_radii(base, parts[1].rho)
        optimizer.when, optimizer.where, optimizer.between = parts
        optimizer._memory, optimizer._averages = memory, averages
        optimizer._records = Records(warn_caller, optimizer._records.listeners, **counters)
        optimizer._stepper.forget()

    return load


def _counters(state: dict[str, Any]) -> dict[str, Any]:
    """Return the counters if they are possible."""
    for name in COUNTERS[:3]:
        check_count(name, state[name], least=0, why="it counts steps")
    steps, age = state["num_steps"], state["age"]
    if age is not None:
        check_count("age", age, least=0, why="it counts steps")
    for name in ("num_samples", "num_skipped"):
        if state[name] > steps:
            raise ValueError(f"{name} must not be above num_steps={steps}, got {state[name]}.")
    if age is not None and age >= steps:
        raise ValueError(f"age must be below num_steps={steps}, got {age}.")
    return {name: state[name] for name in COUNTERS}


def _memory(memory: Any, parameters: list[Tensor]) -> Memory:
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
    values = [value.detach().to(*kinds[i], copy=True) for i, value in memory.items()]
    return Memory([parameters[i] for i in memory], values)


def _check_base(state_dict: dict[str, Any], parameters: list[Tensor], base: Optimizer) -> None:
    """Refuse invalid radii, and buffers of the wrong shape, which torch would load."""
    for is_own, group in zip(own_rho(bases_of(base)), state_dict["param_groups"], strict=False):
        if not is_own:
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
