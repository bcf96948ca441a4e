"""The picture of a comparison: accuracy against cost."""

import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from vsam.lab.comparison.rows import Row
from vsam.lab.report.figures.drawing import MARKERS, add_names
from vsam.lab.report.style import place_of, styles_for

__all__ = ["accuracy_against_cost"]


def accuracy_against_cost(rows: Sequence[Row]) -> bytes:
    """A PNG of test accuracy against passes per step, 1 for SGD and 2 for SAM, with deviations over seeds.

    Colours and markers are those of the report.
    """
    styles = styles_for([row.label for row in sorted(rows, key=lambda row: place_of(row.method, row.label))])
    figure = Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for row in rows:
        cost = 1 + row.samples / row.steps
        bars = row.accuracy_std if row.seeds > 1 else None
        color, mark = styles[row.label].color, MARKERS[styles[row.label].marker]
        axes.errorbar(cost, row.accuracy, yerr=bars, fmt=mark, color=color, capsize=3, markersize=7)
    axes.set_xlim(0.9, 2.2)
    axes.margins(y=0.2)
    axes.set_xlabel("gradient passes per step (1 = SGD, 2 = SAM)")
    axes.set_ylabel("test accuracy of the last epoch, %")
    seeds = max(row.seeds for row in rows)
    bars_are = ", bars: one standard deviation" if seeds > 1 else ""
    title = f"{rows[0].model} on {rows[0].data}, {seeds} seed{'s' if seeds > 1 else ''}{bars_are}"
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.grid(alpha=0.3)
    add_names(figure, [row.label for row in rows], styles)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
