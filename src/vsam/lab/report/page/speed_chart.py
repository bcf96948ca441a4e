"""Accuracy against speed as an interactive figure: the paper's figure 1."""

from collections.abc import Mapping
from typing import Any

from vsam.lab.paper.numbers import Published
from vsam.lab.report.groups import Group
from vsam.lab.report.page.charts import Chart, Styles, short, words
from vsam.lab.report.points import (
    SpeedPoint,
    Spot,
    accuracy_axis,
    is_against_sam,
    published_spots,
    speed_axis,
    speed_deviations,
    speed_points,
)
from vsam.lab.report.style import Style

__all__ = ["speed_chart"]


def speed_chart(group: Group, styles: Styles, published: Mapping[str, Published]) -> Chart:
    """Accuracy against speed with deviations over seeds, and the paper's points as hollow ones."""
    points = speed_points(group.rows, speed_deviations(group.rows, group.cells))
    hollow = published_spots(group.rows, published)
    series = [_point(point, styles[point.label]) for point in points]
    series += [_published(label, styles[label], spot) for label, spot in hollow.items()]
    spec = {
        "kind": "points",
        "x": speed_axis(group.rows),
        "y": accuracy_axis(group.images, bool(hollow)),
        "series": series,
    }
    unit = "times SAM's speed" if is_against_sam(group.rows) else "images per second"
    texts = {point.label: f"{point.accuracy:.2f} % at {point.speed:,.2f} {unit}" for point in points}
    return Chart("Accuracy against speed", f"Accuracy against training speed: {words(texts)}.", spec, 420)


def _point(point: SpeedPoint, style: Style) -> dict[str, Any]:
    row = point.row
    spread = f" ± {point.accuracy_std:.2f} %, {row.seeds} seeds" if row.seeds > 1 else " %, one seed"
    return _spot(row.label, row.label, style, point) | {
        "lines": [
            f"{point.accuracy:.2f}{spread}",
            f"speed {point.speed:,.2f}, {row.ais:,.0f} images per second",
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
