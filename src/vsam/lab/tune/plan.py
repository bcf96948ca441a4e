"""A search's plan: everything that affects its result, and its folder, which has only one search."""

import hashlib
import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsam.lab.data.validation import HELD_OUT
from vsam.lab.errors import UserError
from vsam.lab.files import write_atomically
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.folder import flat
from vsam.lab.tune.space import Range, choose_space, own_values

__all__ = ["Plan", "enter_folder", "make_plan"]

_HERE, _ELSEWHERE = "in this folder", "elsewhere"


@dataclass(frozen=True)
class Plan:
    """A search.

    Args:
        recipe: what every trial trains, except for the searched settings; its seed is also the search's.
        space: the searched settings.
        seeds: runs per trial, at least 1; their mean counts.
        source: the recipe's name or file, as the user gave it.
        options: the user's other changes to the recipe, as command-line arguments.
        tiny: the recipe's `[tiny]` table, empty if it has none.
    """

    recipe: Recipe
    space: tuple[Range, ...]
    seeds: int
    source: str
    options: tuple[str, ...]
    tiny: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that affects the result of a trial."""
        return {
            "recipe": _plain(self.recipe),
            "search": [str(one) for one in self.space],
            "seeds": self.seeds,
            "held_out": f"one in {HELD_OUT}",
        }

    @property
    def name(self) -> str:
        """The Optuna study's name, different for searches that differ in anything: a database can store many."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
        return f"{self.recipe.name}-{self.recipe.label}-{digest[:12]}"

    @property
    def tries_own(self) -> bool:
        """Whether the recipe's own settings are within the ranges, so that trial 0 tries them."""
        return len(own_values(self.recipe, self.space)) == len(self.space)

    def command(self, trials: int) -> str:
        """What the user would type, without --storage, because its URL may contain a password."""
        space = ",".join(str(one) for one in self.space)
        numbers = ["--method", self.recipe.method, "--trials", str(trials), "--seeds", str(self.seeds)]
        return shlex.join(["vsam", "tune", self.source, *self.options, *numbers, "--search", space])


def _plain(recipe: Recipe) -> dict[str, Any]:
    """The settings of the recipe; `use` and `own` only if the user has methods of their own."""
    dumped = recipe.model_dump(mode="json", exclude={"role", "use", "own"})
    return dumped | {name: value for name, value in (("use", recipe.use), ("own", recipe.own)) if value}


def make_plan(
    source: str,
    *,
    method: str | None = None,
    search: str | None = None,
    seeds: int = 1,
    tiny: bool = False,
    changes: Sequence[str] = (),
) -> Plan:
    """Check the user's options and make a plan.

    Args:
        source: a recipe's name or file.
        method: instead of the recipe's.
        search: ranges as in `choose_space`; None for the method's.
        seeds: runs per trial, at least 1.
        tiny: shrink the recipe as in its `[tiny]` table.
        changes: `key=value` of the recipe, as for `vsam train`.
    """
    methods = [change for change in changes if change.partition("=")[0].strip() == "method"]
    if method is not None and methods:
        raise UserError("The method is given twice, by --method and by --set. Leave one out.")
    options = ["--tiny"] if tiny else []
    options += [part for change in changes if change not in methods for part in ("--set", change)]
    changes = [*changes, *([f"method={method}"] if method else [])]

    def load(more: Sequence[str]) -> Recipe:
        return load_recipe(source, tiny=tiny, changes=[*changes, *more])

    recipe = load(())
    options += [part for file in recipe.use if file.endswith(".py") for part in ("--use", file)]
    space = choose_space(search, load)
    return Plan(recipe, space, seeds, source, tuple(options), _tiny_table(source, changes))


def _tiny_table(source: str, changes: Sequence[str]) -> dict[str, Any]:
    """What `--tiny` would change in the recipe."""
    try:
        small = load_recipe(source, tiny=True, changes=changes).model_dump(exclude_none=True, exclude={"name"})
        whole = load_recipe(source, changes=changes).model_dump(exclude_none=True)
    except UserError:  # there is no such table
        return {}
    return _changed(whole, small)


def _changed(whole: Mapping[str, Any], small: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for key, value in small.items():
        if isinstance(value, dict) and isinstance(whole.get(key), dict):
            if inner := _changed(whole[key], value):
                changed[key] = inner
        elif whole.get(key) != value:
            changed[key] = value
    return changed


def enter_folder(folder: Path, plan: Plan, has_storage: bool) -> str:
    """Record the search in its folder; raises if the folder has another one. Returns the folder's random ID.

    Args:
        folder: of the search; it exists, and the caller holds its lock.
        plan: the search.
        has_storage: whether results are stored in a database that the user named.
    """
    path = folder / "search.json"
    wanted = {"storage": _ELSEWHERE if has_storage else _HERE, **plan.settings}
    if not path.exists():
        place = secrets.token_hex(8)
        write_atomically(path, json.dumps({"place": place, **wanted}, indent=2) + "\n")
        return place
    try:
        begun = json.loads(path.read_text(encoding="utf-8"))
        place = begun.pop("place")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read: {error}. Choose another folder with --out.") from error
    old, new = flat(begun), flat(json.loads(json.dumps(wanted)))
    differences = [
        f"{key.removeprefix('recipe.')} {_brief(old.get(key))} instead of {_brief(new.get(key))}"
        for key in old | new
        if old.get(key) != new.get(key)
    ]
    if differences:
        raise UserError(
            f"{folder} has another search ({', '.join(differences[:5])}{', …' if len(differences) > 5 else ''}). "
            "Give the same settings to resume it, or choose another folder with --out."
        )
    return str(place)


def _brief(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
