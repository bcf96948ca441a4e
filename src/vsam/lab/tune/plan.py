"""What a search is: everything that decides its result, and the folder that may hold only one."""

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
        recipe: what every trial trains, but for the searched settings; its seed is also the search's.
        space: the searched settings.
        seeds: how many runs a trial is the mean of, at least 1.
        source: the recipe's name or file, as the user gave it.
        options: what else the user gave to change the recipe, as arguments of the command.
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
        """Everything that decides the result of a trial."""
        return {
            "recipe": _plain(self.recipe),
            "search": [str(one) for one in self.space],
            "seeds": self.seeds,
            "held_out": f"one in {HELD_OUT}",
        }

    @property
    def name(self) -> str:
        """Of the study: searches that differ in anything have different names, so a database can hold many."""
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()
        return f"{self.recipe.name}-{self.recipe.label}-{digest[:12]}"

    @property
    def tries_own(self) -> bool:
        """Whether the recipe's own settings lie within the ranges, so that trial 0 tries them."""
        return len(own_values(self.recipe, self.space)) == len(self.space)

    def command(self, trials: int) -> str:
        """What the user would type, without the storage, because its address may hold a password."""
        space = ",".join(str(one) for one in self.space)
        numbers = ["--method", self.recipe.method, "--trials", str(trials), "--seeds", str(self.seeds)]
        return shlex.join(["vsam", "tune", self.source, *self.options, *numbers, "--search", space])


def _plain(recipe: Recipe) -> dict[str, Any]:
    """The settings of the recipe; those that only users' own methods have are left out where there is none."""
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
    """Check what the user gave and make a plan of it.

    Args:
        source: a recipe's name or file.
        method: instead of the recipe's.
        search: ranges as `choose_space` reads them; None takes the method's.
        seeds: runs a trial, at least 1.
        tiny: shrink the recipe as its `[tiny]` table says.
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
    """What `--tiny` would change of the recipe."""
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
    """Note the search in its folder, or refuse one that holds another; returns the folder's own name for trials.

    Args:
        folder: of the search, which exists; the caller holds its lock.
        plan: the search.
        has_storage: whether the results are kept in a database that the user named.
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
            f"{folder} holds another search ({', '.join(differences[:5])}{', …' if len(differences) > 5 else ''}). "
            "Give the same settings to go on with it, or choose another folder with --out."
        )
    return str(place)


def _brief(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
