"""Methods by name, ours and users' own."""

import re
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import vsam
from vsam.lab.data import Dataset
from vsam.lab.errors import UserError, nearest
from vsam.lab.methods.objective import Objective
from vsam.lab.methods.own import own_method
from vsam.lab.methods.row import Method
from vsam.lab.methods.table import METHODS
from vsam.lab.own import list_own
from vsam.lab.recipes.recipe import Recipe

__all__ = ["all_methods", "build_objective", "build_optimizer", "find_method", "is_ours"]


def all_methods() -> list[Method]:
    """Ours, and then the user's own."""
    return [*METHODS, *map(own_method, list_own("method"))]


def is_ours(name: str) -> bool:
    """Whether vsam itself has a method of that name."""
    return any(name == method.name for method in METHODS) or _family(name) is not None


def find_method(name: str) -> Method:
    """The method called `name`; `sam-K` and `looksam-K` take any K of at least 1."""
    by_name = {method.name: method for method in all_methods()}
    found = by_name.get(name) or by_name.get(_family(name) or "")
    if found is not None:
        return found
    raise UserError(f"There is no method {name!r}.{nearest(name, by_name)} Bring your own with --use FILE.py.")


def build_optimizer(model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """The recipe's base optimizer, wrapped by its method."""
    groups: list[dict[str, Any]] = [{"params": list(model.parameters()), "weight_decay": recipe.weight_decay}]
    if recipe.quantize is not None:
        perturb_steps = recipe.quantize.perturb_steps
        groups = vsam.quantize.parameter_groups(model, recipe.weight_decay, perturb_steps=perturb_steps)
    if recipe.optimizer == "sgd":
        base: Optimizer = torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum)
    else:
        base = torch.optim.AdamW(groups, lr=recipe.lr)
    method = find_method(recipe.method)
    if recipe.own and not method.defaults:
        raise UserError(f"{recipe.method} has no settings of your own: leave out own.{next(iter(recipe.own))}.")
    try:
        return method.build(base, model, recipe, steps)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{recipe.method}: {error}") from error


def build_objective(model: nn.Module, recipe: Recipe, dataset: Dataset) -> Objective:
    """What a run of the recipe minimises."""
    try:
        return find_method(recipe.method).objective(recipe, model, dataset)
    except (ValueError, RuntimeError) as error:  # the latter from SAF, whose memory would not fit
        raise UserError(f"{recipe.method}: {error}") from error


def _family(name: str) -> str | None:
    """The listed method of a family whose members have a number."""
    return f"{name.partition('-')[0]}-5" if re.fullmatch(r"(sam|looksam)-[1-9][0-9]*", name) else None
