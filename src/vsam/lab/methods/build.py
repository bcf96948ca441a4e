"""A recipe's optimizer."""

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import vsam
from vsam import Bernoulli, Decayed, Displaced, Even, GlobalNorm, Momentum, SharpnessAware
from vsam.lab.errors import UserError, nearest
from vsam.lab.methods import PluginMethod, find_method
from vsam.lab.plugins import GIVEN, Plugin, call
from vsam.lab.recipes.recipe import Recipe
from vsam.registry import Method

__all__ = ["build_optimizer"]

_KINDS: dict[str, type] = {"when": vsam.When, "where": vsam.Where, "between": vsam.Between}


def build_optimizer(model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """Construct the recipe's base optimizer, wrapped by its method."""
    groups: list[dict[str, Any]] = [{"params": list(model.parameters()), "weight_decay": recipe.weight_decay}]
    if recipe.quantize is not None:
        perturb_steps = recipe.quantize.perturb_steps
        groups = vsam.quantize.parameter_groups(model, recipe.weight_decay, perturb_steps=perturb_steps)
    if recipe.optimizer == "sgd":
        base: Optimizer = torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum)
    else:
        base = torch.optim.AdamW(groups, lr=recipe.lr)
    method = find_method(recipe.method)
    if recipe.own and not isinstance(method, PluginMethod):
        raise UserError(f"{recipe.method} is not a method of your own: leave out own.{next(iter(recipe.own))}.")
    try:
        return _wrap(method, base, model, recipe, steps)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{recipe.method}: {error}") from error


def _wrap(method: Method, base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    if isinstance(method, PluginMethod):
        return _wrap_by_plugin(method, base, model, recipe, steps)
    if parts := _mixture(method.name, recipe, steps):
        return SharpnessAware(base, model=model, where=GlobalNorm(recipe.rho), **parts)
    if method.kind is None:
        return base
    settings = {key.rpartition(".")[2]: recipe.value(key) for key in method.settings}
    known = {"seed": recipe.seed, "total_steps": steps}
    return vsam.create(recipe.method, base, model=model, **settings, **{name: known[name] for name in method.takes})


def _mixture(name: str, recipe: Recipe, steps: int) -> dict[str, Any]:
    """Return the parts of a combination that only the lab names, empty for other methods."""
    budget, decayed = recipe.budget.budget, Decayed(recipe.budget.decay)
    if name == "bernoulli":
        return {"when": Bernoulli(budget, recipe.seed), "between": decayed}
    if name == "displaced":
        return {"when": Even(budget), "between": Displaced(Momentum(recipe.rho, sign=1))}
    return {}


def _wrap_by_plugin(method: PluginMethod, base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """Return the optimizer that the user's function returns, or the base wrapped by the parts that it returns."""
    for name in recipe.own:
        if f"own.{name}" not in method.defaults:
            hint = nearest(f"own.{name}", list(method.defaults))
            raise UserError(f"Method {method.name!r} has no setting own.{name}.{hint}")
    plugin: Plugin = method.plugin
    given = dict(zip(GIVEN, (base, model, recipe, recipe.rho, recipe.seed, steps), strict=True))
    made = call(plugin, given, **recipe.own)
    if isinstance(made, Optimizer):
        return made
    parts: dict[str, Any] = {}
    for part in made if isinstance(made, tuple) else (made,):
        kind = next((name for name, kind in _KINDS.items() if isinstance(part, kind)), None)
        if kind is None or kind in parts:
            wrong = f"two parts for {kind}" if kind else f"{type(part).__name__}"
            raise UserError(
                f"Method {plugin.name!r} of {plugin.origin} must return an optimizer, or parts for when=, where= and "
                f"between=, got {wrong}."
            )
        parts[kind] = part
    return SharpnessAware(base, model=model, **{"where": GlobalNorm(recipe.rho), **parts})
