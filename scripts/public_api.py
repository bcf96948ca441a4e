"""List the public names and signatures: `python scripts/public_api.py --write` renews tests/public_api.txt."""

import argparse
import enum
import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vsam

FILE = Path(__file__).resolve().parents[1] / "tests" / "public_api.txt"
MODULES = {
    "vsam": None,
    "vsam.amp": None,
    "vsam.between": None,
    "vsam.distributed": None,
    "vsam.quantize": None,
    "vsam.sharpness": None,
    "vsam.trajectory": None,
    "vsam.when": None,
    "vsam.where": None,
    "vsam.integrations.accelerate": "accelerate",
    "vsam.integrations.lightning": "lightning",
    "vsam.integrations.peft": "peft",
    "vsam.integrations.skorch": "skorch",
    "vsam.integrations.transformers": "transformers",
    "vsam.lab": "pydantic",
}
"""Public modules, and the package that each needs."""


def list_module(name: str) -> list[str]:
    """Return a line per public name of a module and per public member of its classes, without types.

    Names of `vsam` itself are not repeated in other modules, nor a public parent's members in its children.
    """
    module = importlib.import_module(name)
    return [line for public in sorted(module.__all__) for line in _lines(name, public, getattr(module, public))]


def is_installed(name: str) -> bool:
    """Return True if the package that a module needs is installed."""
    package = MODULES[name]
    return package is None or importlib.util.find_spec(package) is not None


def _lines(module: str, public: str, value: Any) -> Iterator[str]:
    name = f"{module}.{public}"
    if inspect.ismodule(value):
        yield f"{name}: module"
    elif module != "vsam" and getattr(vsam, public, None) is value:
        yield f"{name} is vsam.{public}"
    elif not callable(value):
        yield f"{name} = {value!r}" if isinstance(value, int | float | str) else f"{name}: {type(value).__name__}"
    else:
        yield f"{name}{_signature(value)}"
        if inspect.isclass(value) and not issubclass(value, enum.Enum):
            yield from (f"{name}.{member}" for member in _members(value))


def _members(kind: type) -> list[str]:
    """Public members that a class has from this package, unless a public parent has the same."""
    own = [one for one in kind.__mro__ if one.__module__.split(".")[0] == "vsam"]
    parents = [one for one in own[1:] if getattr(vsam, one.__name__, None) is one]
    names = {name for one in own for name in vars(one) if not name.startswith("_")}
    found = {_member(name, inspect.getattr_static(kind, name)) for name in names}
    known = {
        _member(name, inspect.getattr_static(one, name)) for one in parents for name in names if hasattr(one, name)
    }
    return sorted(found - known)


def _member(name: str, value: Any) -> str:
    inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return f"{name}{_signature(inner)}" if inspect.isroutine(inner) else name


def _signature(value: Any) -> str:
    """Return the names, kinds and defaults of the arguments, except for constructors of other packages."""
    if inspect.isclass(value):
        definer = next(one for one in value.__mro__ if "__init__" in vars(one))
        if definer.__module__.split(".")[0] not in ("vsam", "builtins"):
            return "(…)"
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    parameters = [one.replace(annotation=one.empty, default=_default(one)) for one in found.parameters.values()]
    return str(found.replace(parameters=parameters, return_annotation=found.empty))


class _Text:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(parameter: inspect.Parameter) -> Any:
    value = parameter.default
    plain = value is parameter.empty or value is None or isinstance(value, bool | int | float | str | tuple)
    return value if plain else _Text(f"<{type(value).__name__}>")


def text() -> str:
    """The whole list, for an environment with all packages."""
    return "\n".join(line for name in MODULES for line in list_module(name)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name} instead of printing")
    if parser.parse_args().write:
        FILE.write_text(text())
    else:
        print(text(), end="")


if __name__ == "__main__":
    main()
