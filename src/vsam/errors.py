"""Argument checks and the error messages they raise."""

import inspect
import math
import numbers
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from vsam.bases import Joined
from vsam.caller import calling_module, calling_package
from vsam.parts import Between, Part, When, Where

__all__ = [
    "ACCUMULATION_EXAMPLE",
    "CLOSURE_EXAMPLE",
    "SHARE_EXAMPLE",
    "check_base",
    "check_count",
    "check_entries",
    "check_fraction",
    "check_list",
    "check_model",
    "check_not_negative",
    "check_number",
    "check_only",
    "check_part",
    "check_positive",
    "check_within",
    "drops_micro_batches",
    "foreign_loop",
    "takes_share",
]

CLOSURE_EXAMPLE = """
    def closure():
        loss = criterion(model(inputs), targets)
        loss.backward()
        return loss
    optimizer.step(closure)"""

SHARE_EXAMPLE = """
    def closure(share=1.0):
        count = max(2, math.ceil(share * len(inputs)))
        loss = criterion(model(inputs[:count]), targets[:count])
        loss.backward()
        return loss
    optimizer.step(closure)"""

ACCUMULATION_EXAMPLE = """
    def closure():
        total = 0
        for inputs, targets in micro_batches:
            loss = criterion(model(inputs), targets) / len(micro_batches)
            loss.backward()
            total += loss.detach()
        return total
    optimizer.step(closure)"""

_LIGHTNING = (
    "In Lightning, write class Net(SharpnessAwareModule, LightningModule), with SharpnessAwareModule from "
    "vsam.integrations.lightning; in manual optimisation, pass step() a closure, or call perturb() after "
    "manual_backward(loss). With Fabric, do so after fabric.backward(loss), and pass it our scaler for 16-mixed: "
    "Fabric(plugins=MixedPrecision('16-mixed', device, scaler=vsam.amp.GradScaler(device)))."
)

_FOREIGN_LOOPS = {
    "lightning": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
    "transformers": "The Trainer of transformers runs one pass per step: write "
    "vsam.integrations.transformers.SharpnessAwareTrainer(…) in place of Trainer(…), or put SharpnessAwareMixin before "
    "a trainer of your own.",
    "accelerate": "With accelerate, call vsam.integrations.accelerate.step(accelerator, optimizer, [closure]), or "
    "import Accelerator from vsam.integrations.accelerate and call optimizer.perturb() after "
    "accelerator.backward(loss).",
}
"""What to write in the loops of other packages."""


def foreign_loop(*packages: str) -> str | None:
    """What to write instead if the loop of one of these packages called us (default: any we know), else None."""
    package = calling_package(packages or _FOREIGN_LOOPS)
    return None if package is None else _FOREIGN_LOOPS[package]


def drops_micro_batches() -> bool:
    """Whether accelerate's own optimizer called us with accumulation on: it leaves out the other micro-batches."""
    state = sys.modules.get("accelerate.state")
    if state is None or state.GradientState._shared_state.get("plugin_kwargs", {}).get("num_steps", 1) == 1:
        return False
    return calling_module(("accelerate.optimizer", "vsam.integrations.accelerate")) == "accelerate.optimizer"


def check_number(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}.")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of floats
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value}.")
    return number


def check_not_negative(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number, zero or above."""
    number = check_number(name, value)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {value}.")
    return number


def check_positive(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number above zero."""
    number = check_number(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be positive, got {value}.")
    return number


def check_fraction(name: str, value: object, *, zero: bool = True, one: bool = True) -> float:
    """Return `value` as a float if it is between 0 and 1; `zero` and `one` say whether the ends are allowed."""
    number = check_number(name, value)
    if number < 0 or number > 1 or (number == 0 and not zero) or (number == 1 and not one):
        interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
        raise ValueError(f"{name} must be in {interval}, got {value}.")
    return number


def check_within(name: str, value: object, low: float, high: float) -> float:
    """Return `value` as a float if it is between `low` and `high`, both included."""
    number = check_number(name, value)
    if not low <= number <= high:
        raise ValueError(f"{name} must be between {low:g} and {high:g}, got {value}.")
    return number


def check_count(name: str, value: object, *, least: int, most: int | None = None, why: str) -> int:
    """Return `value` if it is an integer from `least` to `most`; `why` completes the error's sentence."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} must be an integer, got {value!r}.")
    count = int(value)
    if count < least:
        raise ValueError(f"{name} must be at least {least}, got {value}: {why}.")
    if most is not None and count > most:
        raise ValueError(f"{name} must be at most {most}, got {value}: {why}.")
    return count


def check_list(name: str, values: object, *, most: int) -> list[float]:
    """Return `values` if it is a list of at most `most` finite numbers, none of them negative."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list, got {type(values).__name__}.")
    if len(values) > most:
        raise ValueError(f"{name} must hold at most {most} numbers, got {len(values)}.")
    return [check_not_negative(f"{name}[{i}]", value) for i, value in enumerate(values)]


def check_only(only: object) -> Literal["norm"] | None:
    """Return `only` if it is one of the known choices."""
    if only is None or only == "norm":
        return only
    raise ValueError(
        f"only must be 'norm' (normalisation layers only) or None (all parameters), got {only!r}. To leave out other "
        "parameters, set perturb=False in their parameter group."
    )


def check_entries(state: object, names: Iterable[str]) -> None:
    """Refuse a saved state that lacks one of its entries."""
    if not isinstance(state, dict):
        raise ValueError(f"state must be a dict, got {type(state).__name__}.")
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(f"state must have an entry {missing[0]!r}, got {', '.join(map(str, state)) or 'none'}.")


def check_base(base: object) -> Optimizer:
    """Return the base optimizer, joining a list of them into one; refuse anything else."""
    for one in base if isinstance(base, list | tuple) else [base]:
        if isinstance(one, torch.optim.LBFGS):
            raise ValueError(
                "base must take one gradient per step, but LBFGS calls its closure itself: use SGD or AdamW."
            )
        if not isinstance(one, Optimizer):
            got = one.__name__ if isinstance(one, type) else type(one).__name__
            trainer = foreign_loop("transformers", "accelerate")  # which construct the base from a class
            remedy = trainer or "Write base = torch.optim.SGD(model.parameters(), lr=0.1) and pass that."
            raise ValueError(f"base must be a constructed optimizer, or a list of them, got {got}. {remedy}")
    if isinstance(base, list | tuple):
        if not base:
            raise ValueError("base must be a constructed optimizer, or a list of them, got an empty list.")
        return base[0] if len(base) == 1 else Joined(base)
    assert isinstance(base, Optimizer)
    return base


def check_model(model: object, base: Optimizer) -> None:
    """Refuse what is not the network that `base` trains."""
    if model is None:
        return
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    own = set(model.parameters())
    if not any(parameter in own for group in base.param_groups for parameter in group["params"]):
        raise ValueError("model has none of the base optimizer's parameters: pass the network that base trains.")


def check_part(slot: str, part: object) -> None:
    """Refuse a part that does not belong in its slot; None means the default."""
    kinds = {"when": When, "where": Where, "between": Between}
    if part is not None and not isinstance(part, kinds[slot]):
        fitting = next((name for name, kind in kinds.items() if isinstance(part, kind)), None)
        remedy = f"it is a {fitting} part, so pass it as {fitting}=" if fitting else f"use a part from vsam.{slot}"
        if isinstance(part, type) and issubclass(part, Part):
            remedy += f", as an instance: {part.__name__}(…)"
        raise ValueError(f"{slot} cannot be {part!r}: {remedy}.")


def takes_share(closure: Callable[..., Any]) -> bool:
    """Whether a closure can be called with a share of the batch."""
    try:
        inspect.signature(closure).bind(1.0)
    except (TypeError, ValueError):  # ValueError if a callable has no signature
        return False
    return True
