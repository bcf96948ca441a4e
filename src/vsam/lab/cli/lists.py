"""`vsam methods`, `models`, `explain`, `recipes` and `data`: what there is."""

import json as json_module
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vsam.lab import data as data_room
from vsam.lab import models as model_room
from vsam.lab.cli.options import DataDir
from vsam.lab.methods import METHODS, find_method
from vsam.lab.recipes.recipe import load_recipe, recipe_header, recipe_names

__all__ = ["data", "explain", "methods", "models", "recipes"]


def methods() -> None:
    """List the methods."""
    _show(("method", "what it does", "cost"), [(m.name, m.summary, m.cost) for m in METHODS])


def models(
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List the networks with their numbers of parameters for 10 and 100 classes."""
    rows = model_room.describe()
    if json:
        names = ("name", "parameters_10", "parameters_100")
        typer.echo(json_module.dumps([{name: row[name] for name in names} for row in rows], indent=2))  # type: ignore[literal-required]
        return
    headings = ("model", "10 classes", "100 classes", "structure")
    _show(headings, [(r["name"], f"{r['parameters_10']:,}", f"{r['parameters_100']:,}", r["structure"]) for r in rows])


def explain(method: Annotated[str, typer.Argument(help="A method's name, see vsam methods.")]) -> None:
    """Say what a method computes, what it costs, how to set it, and when not to use it."""
    known = find_method(method)
    defaults = load_recipe("fashion-mini").model_dump()
    lines = [f"{known.name}: {known.summary}.", "", f"Formula    {known.formula}", f"Cost       {known.cost}"]
    lines.append("Settings   " + ", ".join(f"{key}={_setting(defaults, key)}" for key in known.settings))
    lines += ["           (as in the recipe fashion-mini; change with --set)", f"Avoid      {known.avoid}"]
    lines += [f"Reference  {known.reference}", "", f"Try        vsam train --set method={method}"]
    typer.echo("\n".join(lines))


def recipes() -> None:
    """List the recipes."""
    rows = []
    for name in recipe_names():
        recipe = load_recipe(name)
        size = f"{recipe.epochs} × {recipe.batch}"
        rows.append((name, recipe.data.name, recipe.model, size, recipe_header(name).splitlines()[0]))
    _show(("recipe", "data", "model", "epochs × batch", "what it is"), rows)


def data(data_dir: DataDir = None) -> None:
    """List the data sets: where each was found, what is damaged, or how to get it."""
    rows = []
    for row in data_room.describe(data_dir):
        shape = "any" if row.image_shape is None else "×".join(str(n) for n in row.image_shape)
        counts = "any" if row.num_train is None else f"{row.num_train:,} / {row.num_test:,}"
        absent = f"damaged. {row.damage}" if row.damage else f"not found. {row.how_to_get}"
        rows.append((row.name, counts, shape, row.found or absent))
    _show(("data", "train / test", "image", "where"), rows)


def _show(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(table)


def _setting(settings: dict[str, object], key: str) -> object:
    value: object = settings
    for name in key.split("."):
        assert isinstance(value, dict)
        value = value[name]
    return "10·rho" if value is None else value  # only ASAM's radius may be left out
