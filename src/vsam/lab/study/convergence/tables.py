"""The averages of Lemma 2 as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from vsam.lab.comparison.tables import latex_table, markdown_table
from vsam.lab.study.convergence.average import SCHEDULES, reading, slope
from vsam.lab.study.convergence.descent import METHODS

__all__ = ["to_latex", "to_markdown"]

Row = Mapping[str, Any]


def to_markdown(rows: Sequence[Row]) -> str:
    """A table with a line for each schedule and method, and what it says in sentences."""
    sentences = "".join(f"- {sentence}\n" for sentence in reading(rows))
    return f"{markdown_table(_lines(rows), left=2)}\n{sentences}"


def to_latex(rows: Sequence[Row]) -> str:
    """The table for a paper, with booktabs."""
    return latex_table(_lines(rows), left=2)


def _lines(rows: Sequence[Row]) -> list[list[str]]:
    horizons = list(dict.fromkeys(row["horizon"] for row in rows))
    lines = [["learning rate", "method", *(f"T = {horizon:,}" for horizon in horizons), "power of T"]]
    for schedule in SCHEDULES:
        for method in METHODS:
            own = [row for row in rows if (row["schedule"], row["method"]) == (schedule.name, method)]
            averages = [f"{row['average']:.1e} ± {row['average_std']:.0e}" for row in own]
            lines.append([schedule.title, method, *averages, f"{slope(rows, schedule.name, method):+.2f}"])
    return lines
