"""What the figures for papers share: style, curves, legend and saving."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from vsam.lab.files import write_atomically
from vsam.lab.report.downsample import Buckets
from vsam.lab.report.groups import Group
from vsam.lab.report.metrics import Metric
from vsam.lab.report.style import Style
from vsam.lab.text import shortened

__all__ = [
    "LONGEST",
    "MARKERS",
    "Styles",
    "add_legend",
    "add_names",
    "draw_metric",
    "paper_look",
    "save_figure",
    "whole_numbers",
]

Styles = Mapping[str, Style]

LONGEST = 48
"""Longest name, in characters, that leaves room for the figure."""

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "star": "*"}
_DASHES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_LOOK: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vsam",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


@contextmanager
def paper_look() -> Iterator[None]:
    """Matplotlib's settings while figures are drawn and saved; the user's own are ignored."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_LOOK)
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a box is drawn instead
        yield


def save_figure(figure: Figure, path_without_suffix: Path) -> tuple[Path, Path]:
    """Write a figure atomically as SVG and PNG; the same figure gives the same bytes.

    Args:
        figure: from matplotlib.
        path_without_suffix: the path to which .svg and .png are appended.
    """
    paths = []
    for suffix, metadata in ((".svg", {"Date": None, "Creator": None}), (".png", {"Software": None})):
        buffer = io.BytesIO()
        with paper_look():
            figure.savefig(buffer, format=suffix[1:], dpi=200, metadata=metadata)
        paths.append(path_without_suffix.with_name(path_without_suffix.name + suffix))
        write_atomically(paths[-1], buffer.getvalue())
    return paths[0], paths[1]


def draw_metric(axes: Axes, group: Group, metric: Metric, styles: Styles) -> None:
    """A metric for all labels: the mean over seeds, with a band if there are several; unfinished runs are dotted."""
    for label in group.labels:
        curve = group.curve(label, metric.key)
        if curve is not None:
            _draw_curve(axes, curve, styles[label], has_band=group.seeds_of(label) > 1)
    for run, curve in group.loose_curves(metric.key):
        axes.plot(curve.middle, curve.mean, ":", color=styles[run.label].color, linewidth=0.9)
    axes.set_ylabel(re.sub(r"ĉ_(\w+)", r"$\\hat{c}_\\mathrm{\1}$", metric.axis))
    axes.set_ylim(*metric.bounds)
    axes.margins(x=0.01)


def _draw_curve(axes: Axes, curve: Buckets, style: Style, *, has_band: bool) -> None:
    is_point = len(curve.index) == 1
    axes.plot(
        curve.middle,
        curve.mean,
        MARKERS[style.marker] if is_point else _DASHES[style.dash],
        color=style.color,
        linewidth=1.3,
        markersize=4,
    )
    if has_band:
        axes.fill_between(curve.middle, curve.low, curve.high, color=style.color, alpha=0.15, linewidth=0)


def whole_numbers(axes: Axes) -> None:
    """Integer ticks for an x axis that counts steps or epochs."""
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter("{x:,.0f}")


def add_legend(figure: Figure, labels: Sequence[str], styles: Styles) -> None:
    """The labels in a row below the panels."""
    lines = [Line2D([], [], color=styles[label].color, linestyle=_DASHES[styles[label].dash]) for label in labels]
    names = [shortened(label, LONGEST) for label in labels]
    widest = max(map(len, names), default=1)
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 14 / (widest + 7))))
    _legend_below(figure, lines, names, columns, handlelength=2.2)


def _legend_below(figure: Figure, marks: Sequence[Line2D], names: Sequence[str], columns: int, **look: float) -> Legend:
    """Markers and their names, verbatim, below the panels."""
    legend = figure.legend(marks, names, loc="outside lower center", ncols=columns, **look)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def add_names(figure: Figure, labels: Sequence[str], styles: Styles) -> None:
    """Put the names below, and make the figure taller to fit them, so that the panel keeps its size."""
    looks = [styles[label] for label in labels]
    marks = [Line2D([], [], color=look.color, marker=MARKERS[look.marker], linestyle="") for look in looks]
    names = [shortened(label, LONGEST // 2) for label in labels]
    widest = max(map(len, names))
    columns = max(1, min(len(labels), int(figure.get_figwidth() * 15 / (widest + 5))))
    legend = _legend_below(figure, marks, names, columns, fontsize=8, handletextpad=0.2, columnspacing=1.2)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + legend.get_window_extent().height / figure.dpi)
