"""Accuracy against price, one panel per part."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vsam.lab.methods import find_method
from vsam.lab.paper.intervals import mean_interval
from vsam.lab.study.frontier.tables import Point, points

__all__ = ["frontier_figure"]

_LINES = ("sgd", "vsam-budget", "sam-part")
"""Methods whose prices are connected by a line."""
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">", "p", "h")


def frontier_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Means over seeds with 95 % intervals; SAM's as a horizontal band."""
    parts = {part: points(rows, part) for part in dict.fromkeys(row["recipe"] for row in rows)}
    shown = {part: found for part, found in parts.items() if found}
    figure = Figure(figsize=(1 + 3.6 * len(shown), 4.2), layout="constrained")
    methods = list(dict.fromkeys(point.method for found in shown.values() for point in found))
    marks = {method: _MARKERS[i % len(_MARKERS)] for i, method in enumerate(methods)}
    if not shown:
        return figure
    for axes, (part, found) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        _draw(axes, found, marks)
        axes.set_title(part, fontsize=9)
        axes.set_xlabel("price, SGD's run = 1")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("test accuracy, %, last epoch")
    handles = [
        Line2D([], [], color=find_method(method).color, marker=marks[method], linestyle="", label=_title(method))
        for method in methods
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), frameon=False, fontsize=8)
    return figure


def _draw(axes: Axes, found: Sequence[Point], marks: Mapping[str, str]) -> None:
    for method in dict.fromkeys(point.method for point in found):
        own = [point for point in found if point.method == method]
        color = find_method(method).color
        for point in own:
            reach = mean_interval(list(point.accuracies.values()))
            error = 0.0 if reach is None else reach.high - reach.mean
            axes.errorbar(
                point.price, point.accuracy, error, color=color, marker=marks[method], markersize=5, elinewidth=0.8
            )
        if method in _LINES:
            axes.plot([p.price for p in own], [p.accuracy for p in own], color=color, linewidth=1)
    sam = next((point for point in found if point.name == "sam"), None)
    reach = mean_interval(list(sam.accuracies.values())) if sam else None
    if sam is not None:
        axes.axhline(sam.accuracy, color=find_method("sam").color, linestyle="--", linewidth=0.8)
    if reach is not None:
        axes.axhspan(reach.low, reach.high, color=find_method("sam").color, alpha=0.08, linewidth=0)


def _title(method: str) -> str:
    return find_method(method).title
