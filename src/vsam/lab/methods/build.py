"""A recipe's optimizer, and what its run minimises."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import vsam
from vsam.lab.data import Dataset
from vsam.lab.errors import UserError
from vsam.lab.methods import objective
from vsam.lab.methods.find import find_method
from vsam.lab.methods.objective import Objective
from vsam.lab.ranks import ALONE, Ranks
from vsam.lab.recipes.recipe import Recipe

__all__ = ["build_objective", "build_optimizer"]


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
        raise UserError(f"{recipe.method} is not a method of your own: leave out own.{next(iter(recipe.own))}.")
    try:
        return method.build(base, model, recipe, steps)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{recipe.method}: {error}") from error


def build_objective(model: nn.Module, recipe: Recipe, dataset: Dataset, ranks: Ranks = ALONE) -> Objective:
    """The objective of a recipe's run."""
    try:
        made: Objective = getattr(objective, find_method(recipe.method).objective)(recipe, model, dataset, ranks)
    except (ValueError, RuntimeError) as error:  # the latter from SAF, whose memory would not fit
        raise UserError(f"{recipe.method}: {error}") from error
    return made
