"""Tables that fit a phone: those with long rows become one block per row there, with a heading before each cell."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LONGEST_ROW = 70
"""Characters of a row that is still read as a row on a phone."""
WIDEST = 36
"""Characters of the longest words of all columns that fit beside each other."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("doctree-resolved", _mark)
    return {"parallel_read_safe": True}


def _mark(app: Sphinx, tree: nodes.document, page: str) -> None:
    for table in tree.findall(nodes.table):
        rows = [list(row.findall(nodes.entry)) for row in table.findall(nodes.row)]
        texts = [[entry.astext() for entry in row] for row in rows]
        longest = max(sum(map(len, row)) for row in texts)
        widest = sum(max(_longest_word(cell) for cell in column) for column in zip(*texts, strict=True))
        if longest > LONGEST_ROW or widest > WIDEST:
            table["classes"].append("stacked")
            _label(rows, texts[0])


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _label(rows: list[list[nodes.entry]], headings: list[str]) -> None:
    """Put a column's heading before the text of its cells. Only phones show it."""
    for row in rows[1:]:
        for entry, heading in zip(row[1:], headings[1:], strict=True):
            if heading and entry.astext() and isinstance(entry[0], nodes.paragraph):
                entry[0].insert(0, nodes.inline("", f"{heading}: ", classes=["heading"]))
