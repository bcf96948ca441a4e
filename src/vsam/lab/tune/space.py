"""The searched settings and their bounds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsam.lab.errors import UserError
from vsam.lab.methods import find_method
from vsam.lab.recipes.recipe import Recipe

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

__all__ = ["Range", "change", "choose_space", "own_values"]

Value = int | float

# What every method reads, except what changes the data, the length of a trial or the random numbers.
_COMMON = ("lr", "momentum", "weight_decay", "label_smoothing", "batch")


@dataclass(frozen=True)
class Range:
    """The values that a setting may take.

    Args:
        key: of the recipe, dotted.
        low: the smallest value.
        high: the largest one, above `low`.
        log: whether to search on a log scale. `low` must then be positive.
        whole: whether only integers are allowed.
    """

    key: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.key}={self.low:.12g}:{self.high:.12g}{':log' if self.log else ''}"

    @property
    def distribution(self) -> "BaseDistribution":
        """The range as Optuna knows it."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.whole:
            return IntDistribution(round(self.low), round(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def tidy(self, value: float) -> Value:
        """Return the value as a recipe should state it: an integer, or rounded to four digits, and within bounds."""
        inside = min(max(float(f"{value:.4g}"), self.low), self.high)
        return round(inside) if self.whole else inside


def choose_space(text: str | None, load: Callable[[Sequence[str]], Recipe]) -> tuple[Range, ...]:
    """Parse the ranges that the user wrote, like `rho=0.02:0.5:log,vsam.alpha=0.05:0.4`, or those of the method.

    Args:
        text: comma-separated ranges, or None for the method's own.
        load: loads the recipe with more `key=value` changes, which checks keys and bounds.
    """
    recipe = load(())
    text = find_method(recipe.method).search if text is None else text
    if not text and not recipe.own:
        raise UserError(
            f"{recipe.ran} has no settings of its own to search. --search needs at least one range, e.g. "
            "lr=0.01:0.3:log."
        )
    ranges = tuple(_parse(part.strip(), load) for part in (text or "").split(",") if part.strip())
    if not ranges:
        raise UserError("--search needs at least one range, e.g. rho=0.02:0.5:log.")
    keys = [one.key for one in ranges]
    known = [*dict.fromkeys((*find_method(recipe.method).settings, *_COMMON))]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"--search names {key} twice.")
        if key not in known and not key.startswith("augment."):
            raise UserError(
                f"--search {key}: {recipe.ran} does not depend on it, or it changes how trials are measured. "
                f"Choose from {', '.join(known)} and the table augment."
            )
    return ranges


def change(recipe: Recipe, values: Mapping[str, Value], **others: Any) -> Recipe:
    """Return the recipe with other values: `values` by dotted key, `others` by top-level name."""
    settings: dict[str, Any] = recipe.model_dump() | others
    for key, value in values.items():
        *tables, name = key.split(".")
        place = settings
        for table in tables:
            place = place[table]
        place[name] = value
    return Recipe.model_validate(settings)


def own_values(recipe: Recipe, space: Sequence[Range]) -> dict[str, Value]:
    """Return the recipe's own values of the searched settings, if within bounds."""
    defaults = find_method(recipe.method).defaults
    found = {one: defaults.get(one.key) if (v := recipe.value(one.key)) is None else v for one in space}
    return {one.key: value for one, value in found.items() if value is not None and one.low <= value <= one.high}


def _parse(part: str, load: Callable[[Sequence[str]], Recipe]) -> Range:
    key, equals, bounds = (piece.strip() for piece in part.partition("="))
    pieces = [piece.strip() for piece in bounds.split(":")]
    if not key or not equals or len(pieces) not in (2, 3) or (len(pieces) == 3 and pieces[2] != "log"):
        raise UserError(f"--search needs key=low:high or key=low:high:log, got {part!r}.")
    low, high = (_number(piece, part) for piece in pieces[:2])
    if low >= high:
        raise UserError(f"--search {part}: the first bound must be smaller than the second.")
    if len(pieces) == 3 and low <= 0:
        raise UserError(f"--search {part}: a logarithmic range must start above 0.")
    values = [load((f"{key}={piece}",)).value(key) for piece in pieces[:2]]
    return Range(key, low, high, log=len(pieces) == 3, whole=all(isinstance(value, int) for value in values))


def _number(text: str, part: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"--search {part}: {text!r} is not a number.")
    return number
