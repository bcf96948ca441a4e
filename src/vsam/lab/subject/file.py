"""A user's Python file with `model`, `loss` and `batches`, run as a separate module."""

import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from vsam import SharpnessAware
from vsam.lab.errors import UserError
from vsam.lab.files import read_regular
from vsam.lab.subject.subject import Subject, explained, quiet_output

__all__ = ["EXAMPLE", "is_file", "read_file"]

EXAMPLE = """
    model = MyNetwork()
    batches = [(inputs, targets)]

    def loss(model, batch):
        inputs, targets = batch
        return torch.nn.functional.cross_entropy(model(inputs), targets)"""

_MOST_BATCHES = 4


def is_file(name: str) -> bool:
    """Whether a name refers to a Python file rather than a recipe."""
    path = Path(name)
    return path.suffix == ".py" or (path.is_file() and path.suffix != ".toml")


def read_file(name: str) -> Subject:
    """Run a user's file as a module; read `model`, `loss` and `batches` from it, and `base` and `optimizer` if given.

    `loss(model, batch)` is called with each of `batches`; without them, `loss(model)` or `loss()` brings its own data.
    The file is not `__main__`, so code under `if __name__ == "__main__"` does not run. Nothing is unpickled.
    """
    path = Path(name).expanduser()
    if path.suffix != ".py":
        raise UserError(
            f"{name} is not a Python file: give one that ends in .py and defines model and loss. Checkpoints and "
            f"pickles are not loaded. For example:{EXAMPLE}"
        )
    names = _run(path)
    model = _module(name, names)
    loss, batches = _loss(name, names, model)
    optimizer = names.get("optimizer")
    base = _base(name, names, model, optimizer)
    own = optimizer if isinstance(optimizer, SharpnessAware) else None
    usual = 0.1 if type(base).__name__.startswith("Adam") else 0.05
    return Subject(
        path.name,
        model,
        loss,
        batches,
        base,
        _base_code(names, own),
        own,
        rho=usual if own is None else own.param_groups[0].get("rho", usual),
        file=str(path),
        names=names,
    )


def _run(path: Path) -> dict[str, Any]:
    """All names that the file defines."""
    try:
        source = read_regular(path)
        code = compile(source, str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        line = f" on line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UserError(f"{path} is not valid Python{line}: {reason}.") from error
    module = types.ModuleType(f"vsam_subject_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and the like look there
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that a file next to it does not shadow a package
    with explained(str(path), "running it failed"), quiet_output():
        exec(code, module.__dict__)
    return module.__dict__


def _module(name: str, names: dict[str, Any]) -> nn.Module:
    model = names.get("model")
    if isinstance(model, nn.Module):
        if not any(one.requires_grad for one in model.parameters()):
            raise UserError(f"{name}: model has no parameters to train: keep requires_grad=True for some.")
        return model
    if "model" in names:
        hint = "Call it: model = model()." if callable(model) else "Make model a torch.nn.Module."
        raise UserError(f"{name}: model must be a torch.nn.Module, got {_kind(model)}. {hint}")
    other = next((key for key, value in names.items() if isinstance(value, nn.Module)), None)
    hint = f"It has {other}: write model = {other}." if other else f"Write:{EXAMPLE}"
    raise UserError(f"{name} defines no model. {hint}")


def _loss(name: str, names: dict[str, Any], model: nn.Module) -> tuple[Callable[[Any], Any], list[Any]]:
    """The loss as a function of a batch, and some batches."""
    loss = names.get("loss")
    if "loss" not in names:
        other = next((key for key in names if "loss" in key.lower() and callable(names[key])), None)
        hint = f" It has {other}: is that it?" if other else ""
        raise UserError(f"{name} defines no loss.{hint} Write a function that returns it:{EXAMPLE}")
    if isinstance(loss, nn.Module) or not inspect.isroutine(loss):
        raise UserError(f"{name}: loss must be a function, got {_kind(loss)}. Write:{EXAMPLE}")
    count = _num_arguments(loss)
    if count > 2:
        raise UserError(f"{name}: loss must take model and batch, got {count} arguments. Write:{EXAMPLE}")
    batches = _batches(name, names["batches"]) if "batches" in names else []
    if count == 2 and not batches:
        raise UserError(f"{name} defines no batches, which loss(model, batch) needs. Write:{EXAMPLE}")
    if count == 2:
        return (lambda batch: loss(model, batch)), batches
    if count == 1 and not batches:
        return (lambda batch: loss(model)), [None]
    return (loss, batches) if count == 1 else ((lambda batch: loss()), [None])


def _num_arguments(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return 2
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return sum(one.default is one.empty for one in positional)


def _batches(name: str, given: Any) -> list[Any]:
    """The first few of a list, a loader, or a function that returns either."""
    with explained(str(Path(name).expanduser()), "batches failed"), quiet_output():
        made = given() if inspect.isroutine(given) else given
        if isinstance(made, torch.Tensor) or not isinstance(made, Iterable):
            raise UserError(f"{name}: batches must be a list or a loader of batches, got {_kind(made)}.")
        found = list(itertools.islice(made, _MOST_BATCHES))
    if not found:
        raise UserError(f"{name}: batches is empty: give at least one batch.")
    return found


def _base(name: str, names: dict[str, Any], model: nn.Module, optimizer: Any) -> Optimizer:
    """The file's base optimizer, or SGD with momentum."""
    base = optimizer.base if isinstance(optimizer, SharpnessAware) else names.get("base", optimizer)
    if base is None:
        return torch.optim.SGD((one for one in model.parameters() if one.requires_grad), lr=0.01, momentum=0.9)
    if isinstance(base, SharpnessAware):
        base = base.base
    if not isinstance(base, Optimizer):
        which = "base" if "base" in names else "optimizer"
        raise UserError(f"{name}: {which} must be an optimizer instance, got {_kind(base)}.")
    own = set(model.parameters())
    if not any(one in own and one.requires_grad for group in base.param_groups for one in group["params"]):
        raise UserError(f"{name}: the optimizer trains none of model's parameters: give it model.parameters().")
    return base


def _base_code(names: dict[str, Any], own: SharpnessAware | None) -> str:
    """A line for the end of the file after which `base` is its base optimizer; "" if it already is."""
    if own is not None:
        return "base = optimizer.base"
    if "base" in names:
        return "base = base.base" if isinstance(names["base"], SharpnessAware) else ""
    if "optimizer" in names:
        return "base = optimizer"
    return "base = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)  # or yours"


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
