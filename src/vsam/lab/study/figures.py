"""The figures that only studies have: a varied setting, and the norms during training."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from vsam.lab.comparison.rows import Row
from vsam.lab.paper.numbers import Published
from vsam.lab.report.figures.figures import accuracy_against_speed
from vsam.lab.report.points import is_against_sam

__all__ = ["norms_figure", "setting_figure", "speed_figure"]

_SYMBOLS = {"alpha": "α", "gamma": "γ"}
_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#666666"
_LINEAR = 0.1  # relative changes above this are drawn on a logarithmic axis
Record = Mapping[str, Any]


def speed_figure(part: str, rows: Sequence[Record], published: Mapping[str, Published]) -> Figure:
    """Accuracy against speed of a part's rows, with deviations over seeds."""
    found = [Row.from_record(row) for row in rows]
    key = "speed_to_sam_each" if is_against_sam(found) else "ais_each"
    speeds = {row["label"]: [speed for speed in row.get(key, []) if speed is not None] for row in rows}
    deviations = {label: statistics.stdev(values) for label, values in speeds.items() if len(values) > 1}
    return accuracy_against_speed(found, name=part, deviations=deviations, published=published)


def setting_figure(rows: Sequence[Record], varied: str) -> Figure:
    """Accuracy and the fraction of sampled steps against the varied setting, a dot per seed and a line per part."""
    found = Counter(row["recipe"] for row in rows if row[varied] is not None)
    parts = [part for part, count in found.items() if count > 1] or list(found)
    figure = Figure(figsize=(6.4, 0.4 + 2.8 * len(parts)), layout="constrained")
    for (left, right), part in zip(figure.subplots(len(parts), 2, squeeze=False), parts, strict=True):
        _draw_setting(left, right, [row for row in rows if row["recipe"] == part], varied)
    figure.suptitle("dots: seeds, line: their mean", fontsize=9)
    return figure


def _draw_setting(left: Axes, right: Axes, rows: Sequence[Record], varied: str) -> None:
    own = [row for row in rows if row[varied] is not None]
    values = [row[varied] for row in own]
    _with_seeds(left, values, [row["accuracies"] for row in own])
    _with_seeds(right, values, [[100 * count / row["steps"] for count in row["samples_each"]] for row in own])
    for row in rows:
        if row["method"] == "sam":
            left.axhline(row["accuracy"], color=_GREY, linestyle="--")
            left.annotate(
                "SAM", (0.02, row["accuracy"]), xycoords=("axes fraction", "data"), ha="left", va="bottom", color=_GREY
            )
    left.margins(y=0.1)
    left.set_title(_where(rows[0]), fontsize=9)
    left.set_ylabel("test accuracy, %")
    right.set_ylabel("sampled steps, %")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel(_SYMBOLS[varied])
        axes.grid(alpha=0.3)


def norms_figure(rows: Sequence[Record]) -> Figure:
    """A column per part: SAM's ‖g‖ and ‖PSF‖ over the steps, and below them vSAM's rate and changes."""
    parts = list(dict.fromkeys(row["recipe"] for row in rows))
    figure = Figure(figsize=(1 + 3.4 * len(parts), 6), layout="constrained")
    grid = figure.subplots(3, len(parts), squeeze=False, sharex="col")
    for column, part in enumerate(parts):
        sam, law = (next((r for r in rows if r["recipe"] == part and r["method"] == m), None) for m in ("sam", "vsam"))
        top, middle, bottom = grid[:, column]
        if sam is not None:
            _over_steps(top, sam, "grad_norms", "‖g‖", _BLUE)
            _over_steps(top, sam, "psf_norms", "‖PSF‖", _ORANGE)
            top.set_yscale("log")
            top.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            top.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            top.yaxis.set_minor_formatter(NullFormatter())
            top.set_title(_where(sam), fontsize=9)
        if law is not None:
            _over_steps(middle, law, "rates", "vSAM", _BLUE)
            _over_steps(bottom, law, "changes_var", "ĉ_var", _BLUE)
            _over_steps(bottom, law, "changes_norm", "ĉ_norm", _ORANGE)
        middle.set_ylim(0, 1.05)
        bottom.set_yscale("symlog", linthresh=_LINEAR)
        bottom.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        bottom.set_xlabel("step")
        for axes in (top, middle, bottom):
            axes.grid(alpha=0.3)
    for axes, words in zip(
        grid[:, 0], ("norm in SAM's run", "share of steps sampled", f"change,\nlinear below {_LINEAR}"), strict=True
    ):
        axes.set_ylabel(words)
    for axes in (grid[0, 0], grid[2, 0]):
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    figure.suptitle("lines: means over seeds,\nbands: range of seeds", fontsize=8)
    return figure


def _where(row: Record) -> str:
    return f"{row['model']} on {row['recipe']}"


def _with_seeds(axes: Axes, values: Sequence[float], by_seed: Sequence[Sequence[float]]) -> None:
    means = [float(np.mean(numbers)) for numbers in by_seed]
    axes.plot(values, means, color=_BLUE, marker="_", markersize=12)
    for value, numbers in zip(values, by_seed, strict=True):
        axes.plot([value] * len(numbers), numbers, linestyle="", marker="o", color=_BLUE, alpha=0.5, markersize=4)
    axes.set_xticks(values, [f"{value:g}" for value in values])


def _over_steps(axes: Axes, row: Record, key: str, name: str, color: str) -> None:
    numbers = np.array([[np.nan if x is None else x for x in seed] for seed in row[key]], dtype=float)
    known = ~np.isnan(numbers).all(axis=0)
    if not known.any():
        return
    ends = np.arange(1, numbers.shape[1] + 1) * row["steps"] / numbers.shape[1]
    found = numbers[:, known]
    axes.fill_between(
        ends[known], np.nanmin(found, axis=0), np.nanmax(found, axis=0), color=color, alpha=0.2, linewidth=0
    )
    axes.plot(ends[known], np.nanmean(found, axis=0), color=color, label=name)
