"""The few ways in which text becomes HTML; every text passes through `text`."""

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from vsam.lab.report.text import printable

__all__ = ["definitions", "element", "script_json", "table", "text"]


def text(value: object) -> str:
    """Any value as text that stands for itself in HTML, in attributes too; what cannot be shown becomes �."""
    return html.escape(printable(value))


def element(name: str, content: str, **attributes: object) -> str:
    """An element around HTML; attributes are escaped, a trailing _ of their names is dropped, and _ becomes -."""
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    inside = "".join(f' {key}="{text(value)}"' for key, value in pairs)
    return f"<{name}{inside}>{content}</{name}>"


def definitions(pairs: Iterable[tuple[str, str]], **attributes: object) -> str:
    """A list of names and texts."""
    items = (f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    return element("dl", "".join(items), **attributes)


def table(caption: str, head: str, rows: Sequence[Sequence[str]], label: str) -> str:
    """A table in a box of its own to scroll in; caption, head and cells are HTML, the first cell of a row names it."""
    body = ""
    for first, *rest in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in rest)
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    body = f"<caption><span>{caption}</span></caption><thead>{head}</thead><tbody>{body}</tbody>"
    return element("div", f"<table>{body}</table>", class_="scroll", tabindex=0, role="region", aria_label=label)


def script_json(value: Any) -> str:
    """JSON that may stand within a script element: nothing in it can end the element."""
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return plain
