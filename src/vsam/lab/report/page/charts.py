"""The interactive figures as plain dictionaries for `chart.js`, each with its numbers as alternative text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from vsam.lab.comparison.rows import Row
from vsam.lab.paper.numbers import Published
from vsam.lab.report.downsample import Buckets
from vsam.lab.report.groups import Group
from vsam.lab.report.metrics import SHARPNESS_METRICS, STEP_METRICS, Metric
from vsam.lab.report.points import (
    Spot,
    accuracy_axis,
    is_against_sam,
    published_spots,
    speed_axis,
    speed_deviations,
    speed_spots,
)
from vsam.lab.report.style import Style
from vsam.lab.text import shortened

__all__ = [
    "Chart",
    "Styles",
    "epoch_charts",
    "sample_chart",
    "sharpness_charts",
    "short",
    "speed_chart",
    "step_charts",
    "words",
]

Styles = Mapping[str, Style]

_LONGEST = 26  # longest name, in characters, that leaves room for the figure on a narrow screen
_MOST_WORDS = 12  # methods named in an alternative text


@dataclass(frozen=True)
class Chart:
    """A figure of the page.

    Args:
        title: what it shows.
        alternative: its numbers in words, for screen readers.
        spec: what is drawn: the `kind` (curves, points or strips), the axis labels and the `series`, each with its
            `label`. Text is unescaped: the page never treats it as markup.
        height: in pixels.
    """

    title: str
    alternative: str
    spec: dict[str, Any]
    height: int = 300


def epoch_charts(group: Group, styles: Styles) -> list[Chart]:
    """The learning curves."""
    return [_curves(group, styles, metric, "epoch") for metric in group.epoch_metrics if group.has(metric.key)]


def step_charts(group: Group, styles: Styles) -> list[Chart]:
    """Norms and sampling over steps."""
    return [_curves(group, styles, metric, "step") for metric in STEP_METRICS if group.has(metric.key)]


def sharpness_charts(group: Group, styles: Styles) -> list[Chart]:
    """Sharpness measured over steps."""
    return [_curves(group, styles, metric, "step") for metric in SHARPNESS_METRICS if group.has(metric.key)]


def sample_chart(group: Group, styles: Styles) -> Chart | None:
    """Which steps were sampled: a row per run, more opaque where more steps were sampled."""
    by_label: dict[str, list[tuple[str, Buckets]]] = {}
    for run in group.runs:
        if run.sampled is not None and len(run.sampled.index):
            name = _run_name(shortened(run.label, _LONGEST), run.seed, run.state)
            by_label.setdefault(run.label, []).append((name, run.sampled))
    if not by_label:
        return None
    series = [
        {
            "label": label,
            "color": styles[label].color,
            "rows": [{"name": name, "share": _numbers(sampled.share)} for name, sampled in rows],
        }
        for label, rows in by_label.items()
    ]
    width = next(iter(by_label.values()))[0][1].width
    spec = {"kind": "strips", "x": "step", "y": "", "total": group.steps, "width": width, "series": series}
    shares = {
        label: f"{sum(float(row.count.sum()) for _, row in rows) / (len(rows) * group.steps):.0%}"
        for label, rows in by_label.items()
    }
    alternative = f"Fraction of the {group.steps:,} steps that were sampled: {words(shares)}."
    return Chart("Which steps were sampled", alternative, spec, 60 + 22 * sum(map(len, by_label.values())))


def speed_chart(group: Group, styles: Styles, published: Mapping[str, Published]) -> Chart:
    """Accuracy against speed with deviations over seeds, as in the paper's figure 1; the paper's points are hollow."""
    spots = speed_spots(group.rows, speed_deviations(group.rows, group.finished))
    hollow = published_spots(group.rows, published)
    series = [_ours(row, spots[row.label], styles[row.label]) for row in group.rows]
    series += [_published(label, styles[label], spot) for label, spot in hollow.items()]
    spec = {
        "kind": "points",
        "x": speed_axis(group.rows),
        "y": accuracy_axis(group.images, bool(hollow)),
        "series": series,
    }
    unit = "times SAM's speed" if is_against_sam(group.rows) else "images per second"
    texts = {label: f"{spot.accuracy:.2f} % at {spot.speed:,.2f} {unit}" for label, spot in spots.items()}
    return Chart("Accuracy against speed", f"Accuracy against training speed: {words(texts)}.", spec, 420)


def _curves(group: Group, styles: Styles, metric: Metric, unit: str) -> Chart:
    series: list[dict[str, Any]] = []
    ends: dict[str, str] = {}
    for label in group.labels:
        curve = group.curve(label, metric.key)
        if curve is not None:
            style = styles[label]
            look = {"color": style.color, "dash": style.dash, "width": 2}
            series.append(_line(label, label, curve, look) | (_band(curve) if group.seeds_of(label) > 1 else {}))
            ends[label] = f"{curve.mean[-1]:.4g}"
    for run, curve in group.loose_curves(metric.key):
        look = {"color": styles[run.label].color, "dash": "dot", "width": 1}
        series.append(_line(run.label, _run_name(run.label, run.seed, run.state), curve, look))
        ends.setdefault(f"{run.label}, unfinished", f"{curve.mean[-1]:.4g}")
    spec = {"kind": "curves", "x": unit, "y": metric.axis, "bounds": list(metric.bounds), "series": series}
    return Chart(metric.title, f"{metric.title} over the {unit}s, at the end: {words(ends)}.", spec)


def _line(label: str, name: str, curve: Buckets, look: dict[str, Any]) -> dict[str, Any]:
    return {"label": label, "name": name, "x": _numbers(curve.middle), "y": _numbers(curve.mean), **look}


def _band(curve: Buckets) -> dict[str, Any]:
    return {"low": _numbers(curve.low), "high": _numbers(curve.high)}


def _run_name(label: str, seed: int, state: str) -> str:
    return f"{label}, seed {seed}" + ("" if state == "finished" else ", unfinished")


def words(texts: Mapping[str, str]) -> str:
    """Names with their numbers, as many as one would listen to."""
    return "; ".join(_few(f"{name} {text}" for name, text in texts.items())) or "nothing"


def _few(texts: Iterable[str]) -> Sequence[str]:
    every = list(texts)
    more = len(every) - _MOST_WORDS
    return every if more <= 0 else [*every[:_MOST_WORDS], f"and {more} more"]


def _numbers(values: NDArray[Any]) -> list[float]:
    return [short(value) for value in values.tolist()]


def short(value: float) -> float:
    """Rounded to five digits: more than a screen shows, at half the bytes."""
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() else short


def _ours(row: Row, spot: Spot, style: Style) -> dict[str, Any]:
    spread = f" ± {spot.accuracy_std:.2f} %, {row.seeds} seeds" if row.seeds > 1 else " %, one seed"
    return _spot(row.label, row.label, style, spot) | {
        "lines": [
            f"{spot.accuracy:.2f}{spread}",
            f"speed {spot.speed:,.2f}, {row.ais:,.0f} images per second",
            f"{row.samples:,.0f} of {row.steps:,} steps sampled",
        ],
    }


def _published(label: str, style: Style, spot: Spot) -> dict[str, Any]:
    lines = [f"{spot.accuracy:.2f} %, best epoch", f"speed {spot.speed:.2f}, other hardware"]
    return _spot(label, f"{label}, the paper's", style, spot) | {"hollow": True, "lines": lines}


def _spot(label: str, name: str, style: Style, spot: Spot) -> dict[str, Any]:
    return {
        "label": label,
        "name": name,
        "x": short(spot.speed),
        "y": short(spot.accuracy),
        "x_std": short(spot.speed_std),
        "y_std": short(spot.accuracy_std),
        "color": style.color,
        "marker": style.marker,
    }
