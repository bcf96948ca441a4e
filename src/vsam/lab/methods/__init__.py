"""The methods by their names in recipes and tables: the library's, what only the lab has, and user-defined ones."""

from dataclasses import dataclass
from pathlib import Path

from vsam import registry
from vsam.lab.errors import UserError, nearest
from vsam.lab.plugins import Plugin, list_plugins, settings_of
from vsam.lab.text import shortened
from vsam.registry import Method

__all__ = ["METHODS", "Method", "PluginMethod", "all_methods", "find_method", "is_ours"]

_MORE = registry.read(Path(__file__).with_name("methods.toml"))
_AFTER = {"": ("sgd",), "sam-5": ("sam-10",), "esam": ("saf", "mesa"), "sam-part": ("bernoulli", "displaced")}
"""The places of the lab's own rows among the library's."""

_ORDER = [one for name in ("", *registry.METHODS) for one in (name, *_AFTER.get(name, ())) if one]
METHODS = tuple((registry.METHODS | _MORE)[name] for name in _ORDER)


@dataclass(frozen=True, kw_only=True)
class PluginMethod(Method):
    """A row whose optimizer is made by the user's function."""

    plugin: Plugin


def all_methods() -> list[Method]:
    """Return ours, then the user-defined ones."""
    return [*METHODS, *map(_row, list_plugins("method"))]


def is_ours(name: str) -> bool:
    """Return True if vsam itself has a method of that name."""
    return any(name == method.name for method in METHODS) or _family(name) is not None


def find_method(name: str) -> Method:
    """Return the method called `name`. `sam-K` and `looksam-K` take any K from 1 to 999,999,999."""
    by_name = {method.name: method for method in all_methods()}
    found = by_name.get(name) or by_name.get(_family(name) or "")
    if found is not None:
        return found
    raise UserError(
        f"There is no method {shortened(name, 60)!r}.{nearest(name, by_name)} Add your own with --use FILE.py."
    )


def _family(name: str) -> str | None:
    """Return the listed method of a family whose members have a number."""
    return registry.listed_name(name) if name.islower() else None


def _row(plugin: Plugin) -> Method:
    """Return the row of a user's method. Its cost is unknown, and it may read rho from the recipe."""
    defaults = {f"own.{name}": value for name, value in settings_of(plugin).items()}
    return PluginMethod(
        name=plugin.name,
        title=plugin.name,
        summary=plugin.summary,
        cost="unknown",
        copied=(),
        paper=f"user-defined, {plugin.origin}",
        settings=("rho", *defaults),
        search="",
        defaults=defaults,
        plugin=plugin,
    )
