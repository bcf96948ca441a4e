"""Argument checks and the error messages they raise."""

import inspect
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from vsam._step.misuse import refuse_base
from vsam.bases import Joined
from vsam.parts import Between, Part, When, Where


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
    return _check(name, value, lambda number: number >= 0, "not be negative")


def check_positive(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number above zero."""
    return _check(name, value, lambda number: number > 0, "be positive")


def check_fraction(name: str, value: object, *, zero: bool = True, one: bool = True) -> float:
    """Return `value` as a float if it is between 0 and 1. `zero` and `one` allow the ends."""
    interval = f"be in {'[' if zero else '('}0, 1{']' if one else ')'}"
    return _check(name, value, lambda x: 0 < x < 1 or (zero and x == 0) or (one and x == 1), interval)


def check_budget(budget: float | None, target: str | None) -> float | None:
    """Return the fraction of steps to sample, if given. A target of `x` times SAM's speed is a fraction of 2/x − 1."""
    if target is None:
        return None if budget is None else check_fraction("budget", budget, zero=False)
    if budget is not None:
        raise ValueError(f"budget and target set the same thing, got {budget!r} and {target!r}: give one.")
    try:
        speed = float(str(target).strip().lower().removesuffix("x"))
    except ValueError:
        speed = math.nan
    if not 1 <= speed < 2:
        raise ValueError(f"target must be a multiple of SAM's speed in [1, 2), got {target!r}: write target='1.6x'.")
    return 2 / speed - 1


def check_within(name: str, value: object, low: float, high: float) -> float:
    """Return `value` as a float if it is between `low` and `high`, both included."""
    return _check(name, value, lambda number: low <= number <= high, f"be between {low:g} and {high:g}")


def _check(name: str, value: object, is_allowed: Callable[[float], bool], words: str) -> float:
    number = check_number(name, value)
    if not is_allowed(number):
        raise ValueError(f"{name} must {words}, got {value}.")
    return number


def check_count(name: str, value: object, *, least: int, most: int | None = None, why: str) -> int:
    """Return `value` if it is an integer from `least` to `most`. `why` completes the error's sentence."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} must be an integer, got {value!r}.")
    count = int(value)
    if count < least or (most is not None and count > most):
        bound = f"at least {least}" if count < least else f"at most {most}"
        raise ValueError(f"{name} must be {bound}, got {value}: {why}.")
    return count


def check_switch(name: str, value: object) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}.")
    return value


def check_list(name: str, values: object, *, most: int) -> list[float]:
    """Return `values` if it is a list of at most `most` finite numbers, none of them negative."""
    if not isinstance(values, list | tuple) or len(values) > most:
        got = f"{len(values)} of them" if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"{name} must be a list of at most {most} numbers, got {got}.")
    return [check_not_negative(f"{name}[{i}]", value) for i, value in enumerate(values)]


def check_only(only: object) -> Literal["norm"] | None:
    """Return `only` if it is one of the known choices."""
    if only is None or only == "norm":
        return only
    raise ValueError(f"only must be 'norm' or None, got {only!r}: perturb=False in a group leaves out its parameters.")


def check_entries(state: object, names: Iterable[str]) -> None:
    """Raise if a saved state lacks one of its entries."""
    if not isinstance(state, dict):
        raise ValueError(f"state must be a dict, got {type(state).__name__}.")
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(f"state must have an entry {missing[0]!r}, got {', '.join(map(str, state)) or 'none'}.")


def check_base(base: object) -> Optimizer:
    """Return the base optimizer, joining a list of them into one. Raise if one of them cannot be a base."""
    bases: list[Any] = list(base) if isinstance(base, list | tuple) else [base]
    if not bases:
        refuse_base("base must be a constructed optimizer, or a list of them, got an empty list.")
    for one in bases:
        _check_one_base(one)
    return bases[0] if len(bases) == 1 else Joined(bases)


def _check_one_base(base: Any) -> None:
    name = base.__name__ if isinstance(base, type) else type(base).__name__
    if isinstance(base, Joined) and type(base) is not Joined:
        raise ValueError(f"base must be an ordinary optimizer, got {name}: methods do not nest.")
    if not isinstance(base, Optimizer):
        refuse_base(f"base must be a constructed optimizer, or a list of them, got {name}.")
    arguments = [*inspect.signature(type(base).step).parameters.values()][1:]  # a scheduler wraps that of the object
    if any(one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in arguments):
        raise ValueError(
            f"base must take one gradient per step, but {name} calls its closure itself: use SGD or AdamW."
        )
    if hasattr(base, "fused_backward"):
        raise ValueError(f"base must step after both passes, but {name} steps in backward(): use SGD or Adafactor.")
    if any(group.get("differentiable") for group in [getattr(base, "defaults", {}), *base.param_groups]):
        raise ValueError(
            f"base must not be differentiable, because the weights are restored in place: construct {name} without "
            "differentiable=True."
        )


def check_model(model: object, base: Optimizer) -> None:
    """Raise unless `model` is the network that `base` trains."""
    if model is None:
        return
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    own = set(model.parameters())
    if not any(parameter in own for group in base.param_groups for parameter in group["params"]):
        raise ValueError("model has none of the base optimizer's parameters: pass the network that base trains.")


def check_sync(sync: object, where: Where) -> None:
    """Refuse an unknown `sync`, or one that a part cannot follow."""
    if sync not in ("global", "rank"):
        raise ValueError(f"sync must be 'global' or 'rank', got {sync!r}.")
    if sync == "rank" and where.num_buffers:
        name = type(where).__name__
        raise ValueError(f"sync='rank' would make the averages of {name} differ between ranks: leave out sync=.")


def check_part(slot: str, part: object) -> None:
    """Raise if a part does not belong in its slot. None means the default."""
    kinds = {"when": When, "where": Where, "between": Between}
    if part is not None and not isinstance(part, kinds[slot]):
        fitting = next((name for name, kind in kinds.items() if isinstance(part, kind)), None)
        remedy = f"it is a {fitting} part, so pass it as {fitting}=" if fitting else f"use a part from vsam.{slot}"
        if isinstance(part, type) and issubclass(part, Part):
            remedy += f", as an instance: {part.__name__}(…)"
        raise ValueError(f"{slot} cannot be {part!r}: {remedy}.")
