"""The recipe files: their names, text and header comment. Nothing here needs torch."""

import re
from importlib import resources
from pathlib import Path
from typing import Any

from vsam.lab.errors import UserError, nearest
from vsam.lab.files import read_regular

__all__ = ["header_parts", "read_recipe", "recipe_body", "recipe_header", "recipe_names"]


def recipe_names() -> list[str]:
    """The recipes that ship with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def recipe_header(name: str) -> str:
    """The header comment of a recipe: its command, hardware, time and expected result."""
    lines = read_recipe(name).splitlines()
    return "\n".join(line.removeprefix("#").strip() for line in lines[: _first_setting(lines)])


def recipe_body(name: str) -> str:
    """The settings below the header, as written."""
    lines = read_recipe(name).splitlines()
    return "\n".join(lines[_first_setting(lines) :])


def header_parts(name: str) -> dict[str, str]:
    """The header by heading, in lower case: `command`, `hardware`, `time`, `expected` and `settings`.

    The sentence above them is the `title`. A user's own recipe may have other headings, or none.
    """
    title, *lines = recipe_header(name).splitlines() or [""]
    found = {"title": title}
    for line in lines:
        heading = re.fullmatch(r"([A-Z][a-z]+) {2,}(.+)", line)
        if heading:
            found[heading[1].lower()] = heading[2]
        elif line:
            found[next(reversed(found))] += f" {line}"
    return found


def read_recipe(name: str) -> str:
    """The text of a recipe that ships with the package, or of the user's file."""
    if name in recipe_names():
        return str((_folder() / f"{name}.toml").read_text(encoding="utf-8"))
    path = Path(name)
    if path.suffix == ".toml":
        try:
            return read_regular(path).decode()
        except OSError as error:
            raise UserError(f"Recipe {path} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise UserError(f"Recipe {path} cannot be read: {error}.") from error
    raise UserError(f"There is no recipe {name!r}.{nearest(name, recipe_names())} See vsam recipes.")


def _folder() -> Any:
    return resources.files("vsam.lab.recipes")


def _first_setting(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
