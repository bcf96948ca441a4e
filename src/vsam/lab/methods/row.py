"""What there is to know of a method, in one row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from vsam.lab.recipes.recipe import Recipe

__all__ = ["Build", "Method", "base_alone", "built_by"]

Build = Callable[[Optimizer, nn.Module, Recipe, int], Optimizer]


def base_alone(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """The base optimizer, for methods that are none or are losses."""
    return base


@dataclass(frozen=True)
class Method:
    """Everything about a method: what `vsam methods` and `vsam explain` say, how it is built, searched and drawn.

    Args:
        name: in recipes and tables.
        title: as papers write it.
        summary: what it does, in one line.
        formula: what it computes.
        cost: in passes a step and memory.
        settings: the recipe's keys that it reads.
        avoid: when not to use it.
        reference: where it was published.
        build: wraps the base optimizer, given the network, the recipe and the number of steps of the run.
        search: the ranges that `vsam tune` searches, if there are any.
        color: in figures, as #rrggbb; others than ours get one that is free.
        is_quantized: whether the study of quantized networks trains it.
        defaults: of settings that no recipe has one for, because the method is a user's own.
    """

    name: str
    title: str
    summary: str
    formula: str = ""
    cost: str = ""
    settings: tuple[str, ...] = ()
    avoid: str = ""
    reference: str = ""
    build: Build = base_alone
    search: str | None = None
    color: str | None = None
    is_quantized: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sections(self) -> set[str]:
        """The tables of the recipe that it reads."""
        return {key.partition(".")[0] for key in self.settings if "." in key}


def built_by(kind: Callable[..., Optimizer], section: str | None = None, **fixed: Any) -> Build:
    """Wrap the base by one of the library's classes, with the settings in a section of the recipe."""

    def build(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
        own = getattr(recipe, section).model_dump() if section else {}
        decided = {key: value(recipe, steps) if callable(value) else value for key, value in fixed.items()}
        return kind(base, model=model, **{"rho": recipe.rho, **own, **decided})

    return build
