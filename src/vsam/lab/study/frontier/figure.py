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
_ASIDE = 0.012
"""How far apart methods of the same price are drawn."""
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "<", ">", "p", "h")


def frontier_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Means over seeds with 95 % intervals; SAM's as a horizontal band."""
    parts = {part: points(rows, part) for part in dict.fromkeys(row["recipe"] for row in rows)}
    shown = {part: found for part, found in parts.items() if found}
    columns = 2 if len(shown) == 4 else min(len(shown), 3)
    lines = -(-len(shown) // columns) if shown else 0
    figure = Figure(figsize=(1.5 + 3.4 * columns, 1 + 3.2 * lines), layout="constrained")
    methods = list(dict.fromkeys(point.method for found in shown.values() for point in found))
    marks = {method: _MARKERS[i % len(_MARKERS)] for i, method in enumerate(methods)}
    if not shown:
        return figure
    for i, (part, found) in enumerate(shown.items()):
        axes = figure.add_subplot(lines, columns, i + 1)
        _draw(axes, found, marks)
        axes.set_title(_setting(next(row for row in rows if row["recipe"] == part), rows[0]["model"]), fontsize=9)
        axes.set_xlabel("price: passes, SGD's run = 1")
        axes.grid(alpha=0.3)
        if i % columns == 0:
            axes.set_ylabel("test accuracy, %, last epoch")
    handles = [
        Line2D([], [], color=find_method(method).color, marker=marks[method], linestyle="", label=_title(method))
        for method in methods
    ]
    if any(point.length != 1 for found in shown.values() for point in found):
        handles.append(Line2D([], [], color="0.4", marker="o", fillstyle="none", linestyle="", label="other length"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3 * columns, frameon=False, fontsize=8)
    return figure


def _draw(axes: Axes, found: Sequence[Point], marks: Mapping[str, str]) -> None:
    methods = list(dict.fromkeys(point.method for point in found))
    for i, method in enumerate(methods):
        aside = _ASIDE * (i - (len(methods) - 1) / 2)
        own = [point for point in found if point.method == method]
        color = find_method(method).color
        for point in own:
            reach = mean_interval(list(point.accuracies.values()))
            error = 0.0 if reach is None else reach.high - reach.mean
            fill = "full" if point.length == 1 else "none"
            axes.errorbar(
                point.price + aside,
                point.accuracy,
                error,
                color=color,
                marker=marks[method],
                markersize=5,
                fillstyle=fill,
                elinewidth=0.8,
            )
        if method in _LINES:
            axes.plot([p.price + aside for p in own], [p.accuracy for p in own], color=color, linewidth=1)
    sam = next((point for point in found if point.name == "sam"), None)
    reach = mean_interval(list(sam.accuracies.values())) if sam else None
    if sam is not None:
        axes.axhline(sam.accuracy, color=find_method("sam").color, linestyle="--", linewidth=0.8)
    if reach is not None:
        axes.axhspan(reach.low, reach.high, color=find_method("sam").color, alpha=0.08, linewidth=0)


def _setting(row: Mapping[str, Any], usual: str) -> str:
    """What a part trains on, and its network if that is not the usual one."""
    words = [row["data"].replace("cifar", "CIFAR-")]
    if row["model"] != usual:
        words.append(row["model"].replace("resnet", "ResNet-"))
    if row.get("noise"):
        words.append(f"{row['noise']:.0%} wrong labels".replace("%", " %"))
    return ", ".join(words)


def _title(method: str) -> str:
    return find_method(method).title
