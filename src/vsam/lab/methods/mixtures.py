"""Combinations of parts without a class of their own in the library, for comparisons."""

from torch import nn
from torch.optim import Optimizer

from vsam import Bernoulli, Decayed, Displaced, Even, GlobalNorm, Momentum, SharpnessAware, Tail
from vsam.lab.recipes.recipe import Recipe

__all__ = ["bernoulli", "displaced", "tail"]


def tail(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """The entire budget at the end of the run."""
    when = Tail(recipe.budget.budget, steps)
    between = Decayed(recipe.budget.decay)
    return SharpnessAware(base, model=model, when=when, where=GlobalNorm(recipe.rho), between=between)


def bernoulli(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """The budget as a probability per step."""
    when = Bernoulli(recipe.budget.budget, recipe.seed)
    between = Decayed(recipe.budget.decay)
    return SharpnessAware(base, model=model, when=when, where=GlobalNorm(recipe.rho), between=between)


def displaced(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """The budget spread evenly; the single gradient of other steps is taken at a point along the momentum."""
    when = Even(recipe.budget.budget, steps)
    between = Displaced(Momentum(recipe.rho, sign=1))
    return SharpnessAware(base, model=model, when=when, where=GlobalNorm(recipe.rho), between=between)
