"""The lines of a group's table, with the paper's numbers next to ours if the setting is the paper's."""

from collections.abc import Mapping
from typing import Any

from vsam.lab.comparison.rows import Row
from vsam.lab.comparison.tables import cells
from vsam.lab.paper.numbers import Published, references
from vsam.lab.report.groups import Group
from vsam.lab.report.paper_tables import paper_cells

__all__ = ["HEADINGS", "PAPER_HEADINGS", "published_numbers", "result_lines"]

HEADINGS = (
    "accuracy,\u00a0%",
    "best epoch,\u00a0%",
    "second gradients",
    "images per second",
    "speed, SAM\u00a0=\u00a01",
    "speed, SGD\u00a0=\u00a01",
    "ideal speed, SAM\u00a0=\u00a01",
)
PAPER_HEADINGS = ("best epoch,\u00a0%", "second gradients", "images per second", "speed, SAM\u00a0=\u00a01")


def published_numbers(group: Group) -> dict[str, Published]:
    """The paper's numbers by label, for runs whose setting is the paper's; it has none for held-out images."""
    if group.is_validation:
        return {}
    return references({run.label: run.recipe for run in group.finished if run.recipe is not None})


def result_lines(group: Group, published: Mapping[str, Published]) -> list[dict[str, Any]]:
    """For each row of the group, its label and the cells of both sides, each with a note in small print.

    The number of seeds is 0 if all rows have the same.
    """
    differ = len({row.seeds for row in group.rows}) > 1
    return [
        {
            "label": row.label,
            "seeds": row.seeds if differ else 0,
            "ours": _ours(row),
            "papers": [(text, "") for text in paper_cells(published.get(row.label))],
        }
        for row in group.rows
    ]


def _ours(row: Row) -> list[tuple[str, str]]:
    _, *texts = cells(row)
    quartiles = f"{row.quartiles[0]:.2f}–{row.quartiles[1]:.2f}" if row.quartiles else ""
    behind = {2: f"{row.samples / row.steps:.0%}", 5: quartiles}
    return [(text, behind.get(place, "")) for place, text in enumerate(texts)]
