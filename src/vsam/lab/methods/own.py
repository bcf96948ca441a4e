"""The user's own methods: their functions as rows like ours."""

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsam.lab.errors import UserError, nearest
from vsam.lab.methods.row import Method
from vsam.lab.own import Own, call

if TYPE_CHECKING:  # methods are also listed, without torch
    from torch import nn
    from torch.optim import Optimizer

    from vsam.lab.recipes.recipe import Recipe

__all__ = ["own_method"]

_GIVEN = ("base", "model", "recipe", "rho", "seed", "total_steps")


def own_method(own: Own) -> Method:
    """The row of a user's method; its cost is unknown."""
    parameters = inspect.signature(own.make).parameters
    settings = {name: parameter.default for name, parameter in parameters.items() if name not in _GIVEN}
    if missing := [name for name, default in settings.items() if default is inspect.Parameter.empty]:
        raise UserError(
            f"Method {own.name!r} of {own.origin}: its argument {missing[0]!r} needs a default. Only these do not: "
            f"{', '.join(_GIVEN)}."
        )
    return OwnMethod(
        own.name,
        own.name,
        own.summary,
        cost="unknown",
        reference=f"your own, {own.origin}",
        top=("rho",) if "rho" in parameters else (),
        defaults={f"own.{name}": value for name, value in settings.items()},
        own=own,
    )


@dataclass(frozen=True, kw_only=True)
class OwnMethod(Method):
    """A row whose optimizer is made by the user's function."""

    own: Own

    def build(self, base: "Optimizer", model: "nn.Module", recipe: "Recipe", steps: int) -> "Optimizer":
        """What the function returns, or the base wrapped by the parts it returns."""
        for name in recipe.own:
            if f"own.{name}" not in self.defaults:
                hint = nearest(f"own.{name}", list(self.defaults))
                raise UserError(f"Method {self.name!r} has no setting own.{name}.{hint}")
        values = (base, model, recipe, recipe.rho, recipe.seed, steps)
        made = call(self.own, dict(zip(_GIVEN, values, strict=True)), **recipe.own)
        return _optimizer(self.own, made, base, model, recipe)


def _optimizer(own: Own, made: object, base: "Optimizer", model: "nn.Module", recipe: "Recipe") -> "Optimizer":
    """The optimizer itself, or the base wrapped by the returned parts."""
    from torch.optim import Optimizer

    import vsam

    kinds: dict[str, type] = {"when": vsam.When, "where": vsam.Where, "between": vsam.Between}
    if isinstance(made, Optimizer):
        return made
    parts: dict[str, Any] = {}
    for part in made if isinstance(made, tuple) else (made,):
        kind = next((name for name, kind in kinds.items() if isinstance(part, kind)), None)
        if kind is None or kind in parts:
            wrong = f"two parts for {kind}" if kind else f"{type(part).__name__}"
            raise UserError(
                f"Method {own.name!r} of {own.origin} must return an optimizer, or parts for when=, where= and "
                f"between=, got {wrong}."
            )
        parts[kind] = part
    return vsam.SharpnessAware(base, model=model, **{"where": vsam.GlobalNorm(recipe.rho), **parts})
