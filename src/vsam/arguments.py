"""Constructor arguments: a method's settings, and what to write in place of another package's call."""

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from vsam.errors import foreign_loop

__all__ = ["check_call", "settings_of"]

_FOREIGN = {"base_optimizer", "optimizer", "params", "parameters", "adaptive"}
"""Arguments of other implementations."""
_OF_BASES = {"lr", "momentum", "weight_decay", "nesterov", "betas", "dampening", "eps"}
"""Arguments of base optimizers."""


def settings_of(kind: type[Any]) -> dict[str, bool]:
    """The keyword arguments of a method's class besides `base` and `model`; True for the required ones."""
    from vsam.optimizer import Options

    found = {
        name: one.default is one.empty
        for name, one in inspect.signature(kind).parameters.items()
        if one.kind is one.KEYWORD_ONLY and name != "model"
    }
    return {**found, **dict.fromkeys(Options.__annotations__, False)}


def check_call(kind: type[Any], given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Refuse a call that was written for another implementation, and show the lines to write here.

    Most of them take `SAM(model.parameters(), torch.optim.SGD, lr=0.1)`, some `ASAM(optimizer, model)`.
    Users' own subclasses may take what they like.
    """
    if not given and not named:  # a copy is being made
        return
    base = given[0] if given else named.get("base")
    others = [*given[1:], *(named[name] for name in ("base_optimizer", "optimizer") if name in named)]
    is_base = isinstance(base, Optimizer) or (isinstance(base, list | tuple) and _are_bases(base))
    strange = [name for name in named if name in _FOREIGN or name in _OF_BASES]
    if is_base and not others and not strange:
        return
    if not kind.__init__.__module__.startswith("vsam."):
        return
    remedy = foreign_loop("transformers", "accelerate") or "Write:\n    " + "\n    ".join(
        _lines(kind, [base, *others], named)
    )
    raise ValueError(f"{_complaint(kind, base, is_base, len(others), strange)} {remedy}")


def _complaint(kind: type[Any], base: Any, is_base: bool, num_others: int, strange: list[str]) -> str:
    if not is_base:
        one = base[0] if isinstance(base, list | tuple) else base
        got = one.__name__ if isinstance(one, type) else type(one).__name__
        return f"base must be a constructed optimizer, or a list of them, got {got}."
    if num_others:
        return f"{kind.__name__} takes base and then only keyword arguments, got {1 + num_others} positional ones."
    reason = "it belongs to the base optimizer" if strange[0] in _OF_BASES else "other packages have it"
    if strange[0] == "adaptive":
        reason = "the adaptive method is ASAM, whose rho is about ten times SAM's"
    return f"{kind.__name__} has no argument {strange[0]!r}: {reason}."


def _lines(kind: type[Any], given: list[Any], named: Mapping[str, Any]) -> tuple[str, str]:
    """The line that makes the base optimizer, and the line that makes ours."""
    known = settings_of(kind)
    method = "ASAM" if kind.__name__ == "SAM" and named.get("adaptive") else kind.__name__
    own = {name: value for name, value in named.items() if name in known}
    of_base = {name: value for name, value in named.items() if name not in {*known, *_FOREIGN, "base", "model"}}
    constructed = next((type(one) for one in given if isinstance(one, Optimizer)), None)
    bound = next((one for one in given if isinstance(one, functools.partial)), None)
    chosen = next((one for one in given if isinstance(one, type) and issubclass(one, Optimizer)), None)
    if bound is not None and isinstance(bound.func, type):
        chosen, of_base = bound.func, {**bound.keywords, **of_base}
    optimizer = f"optimizer = {_call(f'vsam.{method}', ['base', 'model=model'], own)}"
    if constructed is not None and not of_base:
        return f"base = {_public_name(constructed)}(…)  # as you have it", optimizer
    made = chosen or constructed or torch.optim.SGD
    rate = {"lr": 1e-3 if made.__name__.startswith("Adam") else 0.1}
    parameters = "groups" if _are_groups(given[0]) else "model.parameters()"
    return f"base = {_call(_public_name(made), [parameters], of_base or rate)}", optimizer


def _public_name(kind: type[Any]) -> str:
    is_torch = getattr(torch.optim, kind.__name__, None) is kind
    return f"torch.optim.{kind.__name__}" if is_torch else kind.__name__


def _call(function: str, given: Iterable[str], named: Mapping[str, Any]) -> str:
    values = [f"{name}={value!r}" if _is_plain(value) else f"{name}=…" for name, value in named.items()]
    return f"{function}({', '.join([*given, *values])})"


def _is_plain(value: Any) -> bool:
    parts = value if isinstance(value, tuple | list) else [value]
    return all(isinstance(one, bool | int | float | str | None) for one in parts) and len(repr(value)) <= 60


def _are_bases(given: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list is left to `check_base`: it holds optimizers, or is empty."""
    return not given or any(isinstance(one, Optimizer) for one in given)


def _are_groups(given: Any) -> bool:
    return isinstance(given, list | tuple) and bool(given) and isinstance(given[0], dict)
