"""Recipes by name or file: read, shrunk, changed and checked."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vsam.lab.errors import UserError
from vsam.lab.files import is_too_deep
from vsam.lab.plugins import bring, find_plugin
from vsam.lab.recipes.files import read_recipe, recipe_header, recipe_names
from vsam.lab.recipes.recipe import Recipe, check_recipe
from vsam.lab.text import shortened

__all__ = ["load_recipe", "recipe_header", "recipe_names"]

# Besides its own error, tomllib raises these for numbers too long and nesting too deep for Python.
_NOT_TOML = (ValueError, RecursionError)


def load_recipe(name: str, *, tiny: bool = False, changes: Iterable[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        name: of a recipe that ships with the package, or a path to a file.
        tiny: shrink it to a run of seconds, as its `[tiny]` table says.
        changes: `key=value` with dotted keys. They override everything else.

    User files that a recipe names, `use = ["own.py"]`, are imported. A run on the user's own data is named after the
    data, and uses all of it.
    """
    text = read_recipe(name)
    try:
        settings = tomllib.loads(text)
    except _NOT_TOML as error:
        raise UserError(f"Recipe {name} is not valid TOML: {error}.") from error
    if is_too_deep(settings):
        raise UserError(f"Recipe {name} is nested too deeply: settings go in tables, one level deep.")
    smaller = settings.pop("tiny", {})
    settings.setdefault("name", Path(name).name.removesuffix(".toml"))
    if tiny:
        if not isinstance(smaller, dict):
            raise UserError(f"Recipe {name}: tiny must be a table, got {smaller!r}.")
        if not smaller:
            raise UserError(f"Recipe {name} has no [tiny] table, so --tiny cannot shrink it. Add one.")
        if settings["name"] and isinstance(settings["name"], str):
            settings["name"] += "-tiny"
        _merge(settings, smaller)
    changed: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set needs key=value, got {change!r}.")
        if key.count(".") > 3:
            raise UserError(f"--set: no setting {shortened(key.strip(), 40)!r}: tables do not nest that deep.")
        _merge(changed, _nested(key.strip(), _parse(value.strip())))
    bring(settings.pop("use", {}), Path(name).parent)
    data = changed.get("data")
    if isinstance(data, dict) and (own_name := _name_of_data(data.get("name"))):
        settings["data"] = {}  # the recipe's subset sizes do not apply to other data
        settings["name"] = own_name + ("-tiny" if tiny else "")
    _merge(settings, changed)
    return check_recipe(name, settings).updated()


def _name_of_data(name: object) -> str | None:
    """The name of runs on the user's own data."""
    if not isinstance(name, str):
        return None
    kind, _, path = name.partition(":")
    if kind == "folder" and path:
        return Path(path).expanduser().resolve().name or None
    return name if find_plugin("data", name) else None


def _parse(value: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {value}")
    except _NOT_TOML:
        return value
    return value if len(parsed) > 1 or is_too_deep(parsed) else parsed["value"]


def _nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def _merge(settings: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(settings.get(key), dict):
            _merge(settings[key], value)
        else:
            settings[key] = dict(value) if isinstance(value, Mapping) else value
