"""The interactive figures: plain dictionaries that plotly.js draws; every name in them is escaped."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from vsam.lab.report.downsample import Buckets
from vsam.lab.report.groups import Group
from vsam.lab.report.metrics import STEP_METRICS, Metric
from vsam.lab.report.style import Style
from vsam.lab.report.text import shortened

__all__ = [
    "Chart",
    "Styles",
    "epoch_charts",
    "make_layout",
    "plain_text",
    "sample_chart",
    "short",
    "step_charts",
]

Styles = Mapping[str, Style]

_LONGEST = 26  # characters of a name that leave room for the figure on a narrow screen


@dataclass(frozen=True)
class Chart:
    """A figure of the page.

    Args:
        title: what it shows; not escaped.
        spec: `data` and `layout` of plotly. A trace's `meta` is the label that it belongs to, not escaped. Where there
            are `rows`, they name the rows of each trace, which the page numbers as far as they are shown.
        height: in pixels.
    """

    title: str
    spec: dict[str, Any]
    height: int = 300


def epoch_charts(group: Group, styles: Styles) -> list[Chart]:
    """The learning curves."""
    return [_curves(group, styles, metric, "epoch") for metric in group.epoch_metrics if group.has(metric.key)]


def step_charts(group: Group, styles: Styles) -> list[Chart]:
    """Norms and sampling over the steps."""
    return [_curves(group, styles, metric, "step") for metric in STEP_METRICS if group.has(metric.key)]


def sample_chart(group: Group, styles: Styles) -> Chart | None:
    """Where the samples fell: a row a run, the fuller the more of its steps were sampled."""
    by_label: dict[str, list[tuple[str, Buckets]]] = {}
    for run in group.runs:
        if run.sampled is not None and len(run.sampled.index):
            name = plain_text(_run_name(shortened(run.label, _LONGEST), run.seed, run.state))
            by_label.setdefault(run.label, []).append((name, run.sampled))
    if not by_label:
        return None
    layout = make_layout("step", "")
    layout["hovermode"] = "closest"
    layout["yaxis"] |= {"showgrid": False, "automargin": True}
    layout["xaxis"] |= {"range": [0.5, group.steps + 0.5], "showgrid": False}
    spec = {
        "data": [_strips(label, [row for _, row in rows], styles[label]) for label, rows in by_label.items()],
        "layout": layout,
        "rows": [[name for name, _ in rows] for rows in by_label.values()],
    }
    return Chart("Where the samples fell", spec, 80 + 22 * sum(map(len, by_label.values())))


def _strips(label: str, rows: Sequence[Buckets], style: Style) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "meta": label,
        "x": _numbers(rows[0].all_middles),
        "z": [_numbers(row.share) for row in rows],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, f"{style.color}00"], [1, f"{style.color}ff"]],
        "showscale": False,
        "ygap": 3,
        "hovertemplate": "step %{x}: %{z:.0%} sampled<extra>%{y}</extra>",
    }


def _curves(group: Group, styles: Styles, metric: Metric, unit: str) -> Chart:
    traces: list[dict[str, Any]] = []
    for label in group.labels:
        curve = group.curve(label, metric.key)
        if curve is not None:
            traces += _with_band(label, curve, styles[label])
    for run, curve in group.loose_curves(metric.key):
        name = _run_name(run.label, run.seed, run.state)
        traces.append(_line(run.label, name, curve, {"color": styles[run.label].color, "width": 1, "dash": "dot"}))
    layout = make_layout(unit, re.sub(r"_(\w+)", r"<sub>\1</sub>", metric.axis))
    layout["xaxis"] |= {"dtick": 1} if max(trace["x"][-1] for trace in traces) <= 10 else {}
    layout["yaxis"] |= _bounds(metric)
    return Chart(metric.title, {"data": traces, "layout": layout})


def _with_band(label: str, curve: Buckets, style: Style) -> list[dict[str, Any]]:
    line = _line(label, label, curve, {"color": style.color, "width": 2, "dash": style.dash})
    if (curve.low == curve.high).all():
        return [line]
    x = _numbers(curve.middle)
    band = {
        "type": "scatter",
        "mode": "lines",
        "meta": label,
        "x": x + x[::-1],
        "y": _numbers(curve.high) + _numbers(curve.low)[::-1],
        "fill": "toself",
        "fillcolor": f"{style.color}26",
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    return [band, line]


def _line(label: str, name: str, curve: Buckets, line: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines" if len(curve.index) > 1 else "markers",
        "meta": label,
        "name": plain_text(name),
        "x": _numbers(curve.middle),
        "y": _numbers(curve.mean),
        "line": line,
        "marker": {"color": line["color"]},
        "hovertemplate": "%{y:.4~g}",
    }


def make_layout(across: str, up: str) -> dict[str, Any]:
    """What all figures have; the colours are the page's."""
    return {
        "showlegend": False,
        "hovermode": "x unified",
        "margin": {"l": 56, "r": 14, "t": 10, "b": 44},
        "xaxis": {"title": {"text": across}, "zeroline": False, "tickformat": ",~g", "hoverformat": ",~g"},
        "yaxis": {"title": {"text": up}, "zeroline": False},
    }


def _bounds(metric: Metric) -> dict[str, Any]:
    low, high = metric.bounds
    if high is not None:
        return {"range": [low, high]}
    return {"rangemode": "tozero"} if low == 0 else {}


def _run_name(label: str, seed: int, state: str) -> str:
    return f"{label}, seed {seed}" + ("" if state == "finished" else ", unfinished")


def plain_text(name: str) -> str:
    """Plotly reads some HTML in texts; quotation marks it takes as they are."""
    return html.escape(name, quote=False)


def _numbers(values: NDArray[Any]) -> list[float]:
    return [short(value) for value in values.tolist()]


def short(value: float) -> float:
    """Five digits: more than a screen shows, and half the bytes."""
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short
