"""`vsam methods`, `models`, `explain`, `recipes` and `data`: what there is."""

import json as json_module
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vsam.lab import data as data_room
from vsam.lab import models as model_room
from vsam.lab.cli.options import DataDir, Use
from vsam.lab.methods import Method, all_methods, find_method
from vsam.lab.recipes.load import load_recipe, recipe_header, recipe_names
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.recipes.settings import ASAM_TIMES

__all__ = ["data", "explain", "methods", "models", "recipes"]


def methods(use: Use = None) -> None:
    """List the methods."""
    _show(("method", "what it does", "cost"), [(m.name, m.summary, m.cost) for m in all_methods()])


def models(
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False, use: Use = None
) -> None:
    """List the networks with their numbers of parameters for 10 and 100 classes."""
    rows = model_room.describe()
    if json:
        names = ("name", "parameters_10", "parameters_100")
        typer.echo(json_module.dumps([{name: row[name] for name in names} for row in rows], indent=2))  # type: ignore[literal-required]
        return
    headings = ("model", "10 classes", "100 classes", "structure")
    _show(headings, [(r["name"], f"{r['parameters_10']:,}", f"{r['parameters_100']:,}", r["structure"]) for r in rows])


def explain(method: Annotated[str, typer.Argument(help="A method's name, see vsam methods.")], use: Use = None) -> None:
    """Say what a method computes, what it costs, how to set it, and when not to use it."""
    known = find_method(method)
    recipe = load_recipe("fashion-mini")
    settings = ", ".join(f"{key}={_setting(recipe, known, key)}" for key in known.settings)
    facts = {
        "Formula": known.formula,
        "Cost": known.cost,
        "Settings": f"{settings or 'none'}\n{'':11}(as in the recipe fashion-mini; change with --set)",
        "Avoid": known.avoid,
        "Reference": known.reference,
    }
    lines = [f"{known.name}: {known.summary}.", "", *(f"{name:11}{fact}" for name, fact in facts.items() if fact)]
    files = "".join(f" --use {shlex.quote(str(file))}" for file in use or ())
    typer.echo("\n".join([*lines, "", f"Try        vsam train{files} --set method={method}"]))


def recipes() -> None:
    """List the recipes."""
    rows = []
    for name in recipe_names():
        recipe = load_recipe(name)
        size = f"{recipe.epochs} × {recipe.batch}"
        rows.append((name, recipe.data.name, recipe.model, size, recipe_header(name).splitlines()[0]))
    _show(("recipe", "data", "model", "epochs × batch", "what it is"), rows)
    typer.echo(
        "\nChange any setting with --set: optimizer=adamw (with lr=0.001), model=wrn16-2, epochs=5. Your own images:\n"
        "vsam train fashion-mini --set data.name=folder:PATH, where PATH holds train/CLASS/ and test/CLASS/."
    )


def data(use: Use = None, data_dir: DataDir = None) -> None:
    """List the data sets: where each was found, what is damaged, or how to get it."""
    rows = []
    for row in data_room.describe(data_dir):
        shape = "any" if row.image_shape is None else "×".join(str(n) for n in row.image_shape)
        counts = "any" if row.num_train is None else f"{row.num_train:,} / {row.num_test:,}"
        absent = f"damaged. {row.damage}" if row.damage else f"not found. {row.how_to_get}"
        absent = row.how_to_get if row.name == "folder" else absent
        rows.append(("folder:PATH" if row.name == "folder" else row.name, counts, shape, row.found or absent))
    _show(("data", "train / test", "image", "where"), rows)


def _show(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False).print(table)


def _setting(recipe: Recipe, method: Method, key: str) -> object:
    if key == "asam.rho" and recipe.asam.rho is None:
        return f"{ASAM_TIMES:g}·rho"
    return method.defaults.get(key, recipe.value(key))
