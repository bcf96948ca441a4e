"""`vsam methods`, `models`, `explain`, `recipes` and `data`."""

import shlex
import tomllib
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vsam.lab import data as data_room
from vsam.lab import models as model_room
from vsam.lab.cli import complete
from vsam.lab.cli.options import DataDir, Json, Use
from vsam.lab.cli.output import facts_text, say, show_json, show_table
from vsam.lab.errors import UserError
from vsam.lab.methods import Method, all_methods, find_method
from vsam.lab.recipes.files import header_parts, read_recipe, recipe_body, recipe_names

if TYPE_CHECKING:
    from vsam.lab.recipes.recipe import Recipe

__all__ = ["data", "explain", "methods", "models", "recipes"]


def methods(json: Json = False, use: Use = None) -> None:
    """List the methods."""
    rows = [{"name": row.name, "summary": row.summary, "cost": row.cost} for row in all_methods()]
    if json:
        show_json(rows)
    else:
        show_table(("method", "what it does", "cost"), [tuple(row.values()) for row in rows])


def models(json: Json = False, use: Use = None) -> None:
    """List the models and their parameter counts.

    Counted for 10 and for 100 classes.
    """
    rows = model_room.describe()
    if json:
        names = ("name", "parameters_10", "parameters_100")
        show_json([{name: row[name] for name in names} for row in rows])  # type: ignore[literal-required]
        return
    headings = ("model", "10 classes", "100 classes", "structure")
    show_table(
        headings, [(r["name"], f"{r['parameters_10']:,}", f"{r['parameters_100']:,}", r["structure"]) for r in rows]
    )


def explain(
    method: Annotated[str, typer.Argument(help="A method's name, see vsam methods.", autocompletion=complete.method)],
    json: Json = False,
    use: Use = None,
) -> None:
    """Explain what a method computes, costs and needs.

    Also when not to use it, and where it was published.
    """
    from vsam.lab.recipes.load import load_recipe

    known = find_method(method)
    recipe = load_recipe("fashion-mini")
    settings = {key: _setting(recipe, known, key) for key in known.settings}
    facts = {
        "formula": known.formula,
        "cost": known.cost,
        "memory": known.memory,
        "avoid": known.avoid,
        "reference": known.reference,
    }
    if json:
        return show_json({"name": known.name, "summary": known.summary, **facts, "settings": settings})
    listed = ", ".join(f"{key}={value}" for key, value in settings.items()) or "none"
    files = "".join(f" --use {shlex.quote(str(file))}" for file in use or ())
    shown = {
        "Formula": known.formula,
        "Cost": known.cost,
        "Memory": known.memory,
        "Settings": f"{listed}\n(as in the recipe fashion-mini; change with --set)",
        "Avoid": known.avoid,
        "Reference": known.reference,
        "Try": f"vsam train{files} --set method={method}{f' --set {known.first_try}' if known.first_try else ''}",
    }
    if method != known.name:
        say(f"{method} is {known.name} with another number of steps:\n")
    say(facts_text({"": f"{known.name}: {known.summary}."}) + "\n")
    say(facts_text({name: fact for name, fact in shown.items() if fact}))
    return None


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Show this recipe in full.", autocompletion=complete.recipes)
    ] = None,
    json: Json = False,
) -> None:
    """List the recipes, or show one of them.

    A recipe states its command, hardware, wall time and expected result.
    """
    if name is not None:
        return _show_recipe(name, json)
    rows = [_recipe_row(name) for name in recipe_names()]
    if json:
        return show_json(rows)
    cells = [(row["name"], f"{row['epochs']} × {row['batch']}", row["title"]) for row in rows]
    show_table(("recipe", "epochs × batch", "what it is"), cells)
    say(
        "\nSee one in full with vsam recipes NAME. Change any setting with --set, e.g.\n"
        "--set optimizer=adamw --set lr=0.001 --set model=wrn16-2 --set epochs=5. Your\n"
        "own images: --set data.name=folder:PATH, where PATH contains train/CLASS/ and\n"
        "test/CLASS/."
    )
    return None


def _recipe_row(name: str) -> dict[str, Any]:
    settings = tomllib.loads(read_recipe(name))
    facts = {"data": settings["data"]["name"], **{key: settings[key] for key in ("model", "epochs", "batch")}}
    return {"name": name, **facts, "title": header_parts(name)["title"]}


def _show_recipe(name: str, json: bool) -> None:
    """The header and the settings, as written in the file."""
    parts = header_parts(name)
    if not json:
        title = parts.pop("title") or f"{name} has no comment at its top."
        say(facts_text({"": title}) + "\n")
        if parts:
            say(facts_text({heading.capitalize(): text for heading, text in parts.items()}) + "\n")
        say(recipe_body(name).strip())
        return
    try:
        settings = tomllib.loads(read_recipe(name))
    except (ValueError, RecursionError) as error:
        raise UserError(f"Recipe {name} is not valid TOML: {error}.") from error
    show_json({"name": name, "header": parts, "settings": settings})


def data(json: Json = False, use: Use = None, data_dir: DataDir = None) -> None:
    """List the datasets, and where each was found.

    Also shows what is damaged, and how to get what is missing.
    """
    described = data_room.describe(data_dir)
    if json:
        return show_json([asdict(row) for row in described])
    rows = []
    for row in described:
        shape = "any" if row.image_shape is None else "×".join(str(n) for n in row.image_shape)
        counts = "any" if row.num_train is None else f"{row.num_train:,} / {row.num_test:,}"
        absent = f"damaged. {row.damage}" if row.damage else f"not found. {row.how_to_get}"
        absent = row.how_to_get if row.name == "folder" else absent
        rows.append(("folder:PATH" if row.name == "folder" else row.name, counts, shape, row.found or absent))
    show_table(("data", "train / test", "image", "where"), rows)
    return None


def _setting(recipe: "Recipe", method: Method, key: str) -> object:
    from vsam.lab.recipes.settings import ASAM_TIMES

    if key == "asam.rho" and recipe.asam.rho is None:
        return f"{ASAM_TIMES:g}·rho"
    return method.defaults.get(key, recipe.value(key))
