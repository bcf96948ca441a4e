"""Methods that users bring: their functions as rows like ours."""

import difflib
import inspect
from typing import Any

from torch import nn
from torch.optim import Optimizer

import vsam
from vsam.lab.errors import UserError
from vsam.lab.methods.row import Build, Method
from vsam.lab.own import Own, call
from vsam.lab.recipes.recipe import Recipe

__all__ = ["own_method"]

_GIVEN = ("base", "model", "recipe", "rho", "seed", "total_steps")
_PARTS: dict[str, type] = {"when": vsam.When, "where": vsam.Where, "between": vsam.Between}


def own_method(own: Own) -> Method:
    """The row of a user's method; what it costs is not known."""
    parameters = inspect.signature(own.make).parameters
    settings = {name: parameter.default for name, parameter in parameters.items() if name not in _GIVEN}
    if missing := [name for name, default in settings.items() if default is inspect.Parameter.empty]:
        raise UserError(
            f"Method {own.name!r} of {own.origin}: its argument {missing[0]!r} needs a default. Only these need none: "
            f"{', '.join(_GIVEN)}."
        )
    keys = (*(["rho"] if "rho" in parameters else []), *(f"own.{name}" for name in settings))
    return Method(
        own.name,
        own.name,
        own.summary,
        cost="not known",
        settings=keys,
        reference=f"your own, {own.origin}",
        build=_builder(own, settings),
        defaults={f"own.{name}": value for name, value in settings.items()},
    )


def _builder(own: Own, defaults: dict[str, Any]) -> Build:
    def build(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
        _check_settings(own, recipe, defaults)
        values = (base, model, recipe, recipe.rho, recipe.seed, steps)
        made = call(own, dict(zip(_GIVEN, values, strict=True)), **recipe.own)
        return _optimizer(own, made, base, model, recipe)

    return build


def _check_settings(own: Own, recipe: Recipe, defaults: dict[str, Any]) -> None:
    for name in recipe.own:
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1, cutoff=0.5)
            hint = f"Did you mean own.{near[0]}?" if near else f"It has: {', '.join(defaults) or 'none'}."
            raise UserError(f"Method {own.name!r} has no setting own.{name}. {hint}")


def _optimizer(own: Own, made: object, base: Optimizer, model: nn.Module, recipe: Recipe) -> Optimizer:
    """The optimizer itself, or the parts that were returned around the base."""
    if isinstance(made, Optimizer):
        return made
    parts: dict[str, Any] = {}
    for part in made if isinstance(made, tuple) else (made,):
        kind = next((name for name, kind in _PARTS.items() if isinstance(part, kind)), None)
        if kind is None or kind in parts:
            wrong = f"two parts for {kind}" if kind else f"{type(part).__name__}"
            raise UserError(
                f"Method {own.name!r} of {own.origin} must return an optimizer, or parts that answer when, where and "
                f"between, got {wrong}."
            )
        parts[kind] = part
    return vsam.SharpnessAware(base, model=model, **{"where": vsam.GlobalNorm(recipe.rho), **parts})
