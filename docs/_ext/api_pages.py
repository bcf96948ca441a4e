"""The API reference: a comment `<!-- api: MODULE -->` on a page becomes the docstrings of the module's public names."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import signature, stringify_signature

FOLDER = Path(__file__).resolve().parents[1] / "api"
COMMENT = re.compile(r"^<!-- api: (\S+?)(?:: (.+?))? -->$", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _escape)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = COMMENT.sub(lambda found: _directives(found[1], found[2]), source[0])


def _escape(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Absolute values in formulas are no substitutions: `|w|` outside of backticks gets its bars escaped."""
    parts = "\n".join(lines).split("`")
    parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
    lines[:] = "`".join(parts).split("\n")


def _sign(
    app: Sphinx, kind: str, name: str, value: Any, options: object, arguments: str | None, returns: str | None
) -> tuple[str, None] | None:
    """The constructor's own arguments where `__new__` takes any, in order to explain another package's call."""
    if kind != "class" or arguments is None or "*given" not in arguments:
        return None
    own = signature(value.__init__, bound_method=True)
    return stringify_signature(own, show_return_annotation=False, unqualified_typehints=True), None


def _directives(module_name: str, names: str | None) -> str:
    """Names that a page lists, all public ones of a module, or with `rest` those that no page has listed."""
    module = importlib.import_module(module_name)
    if names is None:
        chosen = list(module.__all__)
    elif names == "rest":
        chosen = [name for name in module.__all__ if name not in _placed(module_name)]
    else:
        chosen = names.split()
    lines = [f".. py:currentmodule:: {module_name}", ""]
    for name in chosen:
        lines += _directive(module, name)
    return "\n".join(["```{eval-rst}", *lines, "```"]) if len(lines) > 2 else ""


def _placed(module_name: str) -> set[str]:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")))
    listed = [names.split() for found, names in COMMENT.findall(text) if found == module_name and names != "rest"]
    return {name for names in listed for name in names}


def _directive(module: ModuleType, name: str) -> list[str]:
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return []  # has a page of its own
    if inspect.isclass(value):
        is_wrapper = name == "SharpnessAware"
        return [f".. autoclass:: {name}", *(["   :inherited-members: Optimizer"] if is_wrapper else []), ""]
    return [f".. autofunction:: {name}" if callable(value) else f".. autodata:: {name}", ""]
