"""Everything about a method, in one row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vsam.names import NAMED, Named, listed_name

if TYPE_CHECKING:  # the rows are also listed and completed, without torch
    from torch import nn
    from torch.optim import Optimizer

    from vsam.lab.recipes.recipe import Recipe

__all__ = ["Method"]


@dataclass(frozen=True)
class Method:
    """Everything about a method: what `vsam methods` and `vsam explain` say, how it is built, searched and drawn.

    Args:
        name: in recipes and tables.
        title: as papers write it.
        summary: what it does, in one line.
        formula: what it computes.
        cost: in passes per step and memory.
        avoid: when not to use it.
        reference: where it was published.
        mixture: the function in `vsam.lab.methods.mixtures` that combines the parts, if the library has no such class.
        section: the table of the recipe whose keys are arguments of the library's class, or of the loss.
        top: the recipe's other keys that it reads; `rho` is an argument of the class too.
        takes: further arguments of the class, among `seed` and `total_steps`.
        objective: the name of the class in `vsam.lab.methods.objective` that a run of it minimises.
        passes: per step, roughly, if known in advance; used to estimate what a study takes.
        search: the ranges that `vsam tune` searches, if any.
        first_try: a setting to start with where the recipes' would be wrong for it, as `key=value`.
        color: in figures, as #rrggbb; users' own methods get an unused one.
        is_quantized: whether the study of quantized networks trains it.
        is_beyond: whether it is not in the paper's table, so that its study leaves it out.
        defaults: of settings that are in no recipe, because the method is the user's own.
    """

    name: str
    title: str
    summary: str
    formula: str = ""
    cost: str = ""
    avoid: str = ""
    reference: str = ""
    mixture: str | None = None
    section: str | None = None
    top: tuple[str, ...] = ("rho",)
    takes: tuple[str, ...] = ()
    objective: str = "Objective"
    passes: float = 2.0
    search: str | None = None
    first_try: str | None = None
    color: str | None = None
    is_quantized: bool = False
    is_beyond: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> Named | None:
        """The library's class that wraps the base optimizer, and what the name determines; None if there is none."""
        listed = listed_name(self.name)
        return NAMED[listed] if listed is not None else None

    @property
    def settings(self) -> tuple[str, ...]:
        """The recipe's keys that it reads, dotted if in a table."""
        from vsam.lab.recipes.recipe import Recipe

        table: Any = Recipe.model_fields[self.section].annotation if self.section else None
        fixed = self.named.fixed if self.named else {}
        own = [f"{self.section}.{key}" for key in table.model_fields if key not in fixed] if table else []
        return (*self.top, *own, *self.defaults)

    @property
    def sections(self) -> set[str]:
        """The tables of the recipe that it reads."""
        return {key.partition(".")[0] for key in self.settings if "." in key}

    def build(self, base: "Optimizer", model: "nn.Module", recipe: "Recipe", steps: int) -> "Optimizer":
        """The base optimizer, wrapped as the recipe says for a run of `steps` steps."""
        import vsam
        from vsam.lab.methods import mixtures

        if self.mixture is not None:
            mixed: Optimizer = getattr(mixtures, self.mixture)(base, model, recipe, steps)
            return mixed
        if self.named is None:
            return base
        run = {"seed": recipe.seed, "total_steps": steps}
        settings = {key.rpartition(".")[2]: recipe.value(key) for key in self.settings}
        taken = {name: run[name] for name in self.takes}
        return vsam.create(recipe.method, base, model=model, **settings, **taken)
