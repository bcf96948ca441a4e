"""Which settings are searched, and within which bounds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vsam.lab.errors import UserError
from vsam.lab.methods import find_method
from vsam.lab.recipes.recipe import Recipe

__all__ = ["Range", "change", "choose_space", "own_values"]

Load = Callable[[Sequence[str]], Recipe]
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
        log: whether to search on a log scale; `low` must then be positive.
        whole: whether only integers are allowed.
    """

    key: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.key}={self.low:.12g}:{self.high:.12g}{':log' if self.log else ''}"

    def at(self, share: float) -> Value:
        """The value at a fraction of the way from `low` (0) to `high` (1), to four digits."""
        if self.log:
            return self.tidy(math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low))))
        return self.tidy(self.low + share * (self.high - self.low))

    def tidy(self, value: float) -> Value:
        """The value as a recipe should state it: an integer, or rounded to four digits, and within bounds."""
        inside = min(max(float(f"{value:.4g}"), self.low), self.high)
        return round(inside) if self.whole else inside


def choose_space(text: str | None, load: Load) -> tuple[Range, ...]:
    """The ranges that the user wrote, like `rho=0.02:0.5:log,vsam.alpha=0.05:0.4`, or those of the method.

    Args:
        text: comma-separated ranges; None for the method's own.
        load: loads the recipe with more `key=value` changes, which checks keys and bounds.
    """
    recipe = load(())
    method = find_method(recipe.method)
    if text is None:
        if method.search is None:
            raise UserError(
                f"{recipe.method} has no settings of its own to search. Search training settings, e.g. "
                "--search lr=0.01:0.3:log, or choose another --method."
            )
        text = method.search
    ranges = tuple(_parse(part.strip(), load) for part in text.split(",") if part.strip())
    if not ranges:
        raise UserError("--search needs at least one range, e.g. rho=0.02:0.5:log.")
    keys = [one.key for one in ranges]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"--search names {key} twice.")
        _check_is_read(key, recipe)
    return ranges


def change(recipe: Recipe, values: Mapping[str, Value], **others: Any) -> Recipe:
    """The recipe with other values: `values` by dotted key, `others` by top-level name."""
    settings: dict[str, Any] = recipe.model_dump() | others
    for key, value in values.items():
        *tables, name = key.split(".")
        place = settings
        for table in tables:
            place = place[table]
        place[name] = value
    return Recipe.model_validate(settings)


def own_values(recipe: Recipe, space: Sequence[Range]) -> dict[str, Value]:
    """The recipe's own values of the searched settings, if within bounds."""
    found = {one.key: _value(recipe, one.key) for one in space}
    return {one.key: found[one.key] for one in space if one.low <= found[one.key] <= one.high}


def _value(recipe: Recipe, key: str) -> Any:
    value = recipe.value(key)
    return find_method(recipe.method).defaults.get(key) if value is None else value


def _parse(part: str, load: Load) -> Range:
    key, equals, bounds = (piece.strip() for piece in part.partition("="))
    pieces = [piece.strip() for piece in bounds.split(":")]
    if not key or not equals or len(pieces) not in (2, 3) or (len(pieces) == 3 and pieces[2] != "log"):
        raise UserError(f"--search needs key=low:high or key=low:high:log, got {part!r}.")
    low, high = (_number(piece, part) for piece in pieces[:2])
    if low >= high:
        raise UserError(f"--search {part}: the first bound must be smaller than the second.")
    if len(pieces) == 3 and low <= 0:
        raise UserError(f"--search {part}: a logarithmic range must start above 0.")
    for piece in pieces[:2]:
        value = load((f"{key}={piece}",)).value(key)
    return Range(key, low, high, log=len(pieces) == 3, whole=isinstance(value, int))


def _number(text: str, part: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"--search {part}: {text!r} is not a number.")
    return number


def _check_is_read(key: str, recipe: Recipe) -> None:
    known = [*dict.fromkeys((*find_method(recipe.method).settings, *_COMMON))]
    if key not in known and not key.startswith("augment."):
        raise UserError(
            f"--search {key}: {recipe.method} does not depend on it, or it changes how trials are measured. "
            f"Choose from {', '.join(known)} and the table augment."
        )
