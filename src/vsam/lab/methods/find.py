"""Methods by name, ours and the user's own."""

from vsam.lab.errors import UserError, nearest
from vsam.lab.methods.own import own_method
from vsam.lab.methods.row import Method
from vsam.lab.methods.table import METHODS
from vsam.lab.own import list_own
from vsam.lab.text import shortened
from vsam.names import listed_name

__all__ = ["all_methods", "find_method", "is_ours"]


def all_methods() -> list[Method]:
    """Ours, then the user's own."""
    return [*METHODS, *map(own_method, list_own("method"))]


def is_ours(name: str) -> bool:
    """Whether vsam itself has a method of that name."""
    return any(name == method.name for method in METHODS) or _family(name) is not None


def find_method(name: str) -> Method:
    """The method called `name`; `sam-K` and `looksam-K` take any K from 1 to 999,999,999."""
    by_name = {method.name: method for method in all_methods()}
    found = by_name.get(name) or by_name.get(_family(name) or "")
    if found is not None:
        return found
    raise UserError(
        f"There is no method {shortened(name, 60)!r}.{nearest(name, by_name)} Add your own with --use FILE.py."
    )


def _family(name: str) -> str | None:
    """The listed method of a family whose members have a number."""
    return listed_name(name) if name.islower() else None
