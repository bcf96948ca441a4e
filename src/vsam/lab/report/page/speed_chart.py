"""Accuracy against speed as an interactive figure: the paper's figure 1."""

from collections.abc import Mapping
from typing import Any

from vsam.lab.paper.numbers import Published
from vsam.lab.report.groups import Group
from vsam.lab.report.page.charts import Chart, Styles, make_layout, plain_text, short
from vsam.lab.report.points import (
    SpeedPoint,
    Spot,
    accuracy_axis,
    is_against_sam,
    published_spots,
    speed_deviations,
    speed_points,
)
from vsam.lab.report.style import Style

__all__ = ["speed_chart"]


def speed_chart(group: Group, styles: Styles, published: Mapping[str, Published]) -> Chart:
    """Accuracy against speed with deviations over seeds, and the paper's points as hollow ones."""
    points = speed_points(group.rows, speed_deviations(group.rows, group.cells))
    hollow = published_spots(group.rows, published)
    traces = [_point(point, styles[point.label]) for point in points]
    traces += [_published(label, styles[label], spot) for label, spot in hollow.items()]
    axis = "training speed, SAM = 1" if is_against_sam(group.rows) else "training speed, images a second"
    layout = make_layout(axis, accuracy_axis(group.images, bool(hollow)))
    layout["hovermode"] = "closest"
    return Chart("Accuracy against speed", {"data": traces, "layout": layout}, 420)


def _point(point: SpeedPoint, style: Style) -> dict[str, Any]:
    row = point.row
    spread = f"± {point.accuracy_std:.2f} %, {row.seeds} seeds" if row.seeds > 1 else "%, one seed"
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": row.label,
        "name": plain_text(row.label),
        "x": [short(point.speed)],
        "y": [short(point.accuracy)],
        "error_x": {"array": [short(point.speed_std)], "visible": point.speed_std > 0, "thickness": 1.2, "width": 4},
        "error_y": {"array": [short(point.accuracy_std)], "visible": row.seeds > 1, "thickness": 1.2, "width": 4},
        "marker": {"color": style.color, "symbol": style.marker, "size": 11},
        "cliponaxis": False,
        "customdata": [[short(row.ais), short(row.samples), row.steps, spread]],
        "hovertemplate": "%{y:.2f} %{customdata[3]}<br>speed %{x:.2f}, %{customdata[0]:,.0f} images/s<br>"
        "%{customdata[1]:,.0f} of %{customdata[2]:,} steps sampled",
    }


def _published(label: str, style: Style, spot: Spot) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": label,
        "name": f"{plain_text(label)}, the paper's, best epoch",
        "x": [spot.speed],
        "y": [spot.accuracy],
        "error_y": {"array": [spot.accuracy_std], "visible": spot.accuracy_std > 0, "thickness": 1.2, "width": 4},
        "marker": {"color": style.color, "symbol": f"{style.marker}-open", "size": 11, "line": {"width": 2}},
        "hovertemplate": "%{y:.2f} %, best epoch<br>speed %{x:.2f}, other hardware",
    }
