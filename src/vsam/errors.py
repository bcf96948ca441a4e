"""Checks of what users give, and the words they get when something is wrong."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam.parts import Between, Part, When, Where

__all__ = [
    "CLOSURE_EXAMPLE",
    "check_base",
    "check_count",
    "check_fraction",
    "check_model",
    "check_not_negative",
    "check_number",
    "check_part",
    "check_state",
]

CLOSURE_EXAMPLE = """
    def closure():
        loss = criterion(model(inputs), targets)
        loss.backward()
        return loss
    optimizer.step(closure)"""


def check_number(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}: every step would be skipped or lost.")
    return float(value)


def check_not_negative(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number of at least zero."""
    number = check_number(name, value)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {value}.")
    return number


def check_fraction(name: str, value: object, *, zero: bool = True, one: bool = True) -> float:
    """Return `value` as a float if it lies between 0 and 1; `zero` and `one` say whether the ends are allowed."""
    number = check_number(name, value)
    if number < 0 or number > 1 or (number == 0 and not zero) or (number == 1 and not one):
        interval = f"{'[' if zero else '('}0, 1{']' if one else ')'}"
        raise ValueError(f"{name} must lie in {interval}, got {value}.")
    return number


def check_count(name: str, value: object, *, least: int, why: str) -> int:
    """Return `value` if it is a whole number of at least `least`; `why` completes the error's sentence."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}: {why}.")
    return int(value)


def check_base(base: object) -> None:
    """Refuse what cannot be a base optimizer."""
    if isinstance(base, torch.optim.LBFGS):
        raise ValueError("base must take one gradient a step, and LBFGS calls its closure itself: use SGD or AdamW.")
    if not isinstance(base, Optimizer):
        got = base.__name__ if isinstance(base, type) else type(base).__name__
        raise ValueError(
            f"base must be a constructed optimizer, got {got}. "
            "Write base = torch.optim.SGD(model.parameters(), lr=0.1) and give that."
        )


def check_model(model: object, base: Optimizer) -> None:
    """Refuse what is not the network that `base` trains."""
    if model is None:
        return
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    own = set(model.parameters())
    if not any(parameter in own for group in base.param_groups for parameter in group["params"]):
        raise ValueError("model has none of the base optimizer's parameters: give the network that base trains.")


def check_part(slot: str, part: object) -> None:
    """Refuse a part that does not answer the question of its slot; None stands for the default."""
    kinds = {"when": When, "where": Where, "between": Between}
    if part is not None and not isinstance(part, kinds[slot]):
        fitting = next((name for name, kind in kinds.items() if isinstance(part, kind)), None)
        remedy = f"it answers '{fitting}': give it as {fitting}=" if fitting else f"take one of vsam.{slot}"
        if isinstance(part, type) and issubclass(part, Part):
            remedy += f", constructed: {part.__name__}(…)"
        raise ValueError(f"{slot} cannot be {part!r}, {remedy}.")


def check_state(state_dict: dict[str, Any], parts: Sequence[Part], parameters: list[Tensor]) -> dict[str, Any]:
    """Return the `"sharpness"` entry if it fits these parameters and parts, which take it in."""
    if "sharpness" not in state_dict:
        raise ValueError(
            "state_dict has no 'sharpness' entry, so a plain optimizer saved it. To start from it, load it into "
            "optimizer.base."
        )
    sharpness: dict[str, Any] = state_dict["sharpness"]
    expected = {"parts", "states", "memory", "age", "num_steps", "num_samples", "num_skipped"}
    if not isinstance(sharpness, dict) or not expected <= sharpness.keys():
        raise ValueError(f"state_dict's 'sharpness' entry is damaged: it needs {', '.join(sorted(expected))}.")
    names = [type(part).__name__ for part in parts]
    if sharpness["parts"] != names:
        raise ValueError(f"state_dict was saved with the parts {sharpness['parts']}, but this optimizer has {names}.")
    for i, value in sharpness["memory"].items():
        if not 0 <= i < len(parameters) or value.shape != parameters[i].shape:
            raise ValueError(f"state_dict remembers a tensor of shape {tuple(value.shape)} that parameter {i} lacks.")
    for group in state_dict.get("param_groups", ()):
        check_not_negative("rho", group.get("rho", 0.0))
    for part, state in zip(parts, sharpness["states"], strict=True):
        try:
            part.load_state_dict(state)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"state_dict's entry for {type(part).__name__} is damaged: {error!r}.") from error
    return sharpness
