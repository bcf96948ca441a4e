"""Shell completion: names of methods, recipes, models and the like, found without torch."""

from collections.abc import Callable, Iterable

from vsam.lab.methods import all_methods
from vsam.lab.models import names as model_names
from vsam.lab.recipes.files import recipe_header, recipe_names
from vsam.lab.study.plan import SCALES, STUDIES

__all__ = ["listed", "method", "methods", "recipes", "scales", "settings", "studies"]

Found = list[tuple[str, str]]
_KEYS = [
    "method",
    "model",
    "data.name",
    "seed",
    "epochs",
    "batch",
    "lr",
    "rho",
    "optimizer",
    "vsam.alpha",
    "vsam.gamma",
]


def recipes(incomplete: str) -> Found:
    """Recipes that ship with the package, each with its first line."""
    return [(name, recipe_header(name).splitlines()[0]) for name in recipe_names() if name.startswith(incomplete)]


def method(incomplete: str) -> Found:
    """Methods, each with its summary."""
    return [(row.name, row.summary) for row in all_methods() if row.name.startswith(incomplete)]


def _named(known: Iterable[str]) -> Callable[[str], Found]:
    """Completes one of these names."""
    return lambda incomplete: [(name, "") for name in known if name.startswith(incomplete)]


def listed(known: Callable[[], Iterable[str]]) -> Callable[[str], Found]:
    """Completes the last of comma-separated names, leaving out those already given."""

    def complete(incomplete: str) -> Found:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [(f"{before}{comma}{name}", "") for name in known() if name.startswith(last) and name not in given]

    return complete


def settings(incomplete: str) -> Found:
    """Keys of a recipe, and the values of those that are names."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [(f"{name}=", "") for name in _KEYS if name.startswith(key)]
    known: dict[str, Callable[[], Iterable[str]]] = {
        "method": lambda: (row.name for row in all_methods()),
        "model": model_names,
        "data.name": _data,
        "optimizer": lambda: ("sgd", "adamw"),
    }
    values = known[key]() if key in known else ()
    return [(f"{key}={name}", "") for name in values if name.startswith(value)]


def _data() -> Iterable[str]:
    from vsam.lab.data import names as data_names

    return ("folder:" if name == "folder" else name for name in data_names())


methods = listed(lambda: ["all", *(row.name for row in all_methods())])
studies, scales = _named(STUDIES), _named(SCALES)
