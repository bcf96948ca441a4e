"""Accuracy against speed as an interactive figure: the paper's figure 1."""

from collections.abc import Mapping, Sequence
from typing import Any

from vsam.lab.paper.numbers import Published
from vsam.lab.report.groups import Group
from vsam.lab.report.page.charts import LONGEST, Chart, Styles, make_layout, plain_text, short
from vsam.lab.report.placing import place
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
from vsam.lab.report.text import shortened

__all__ = ["speed_chart"]

# Names are placed for a phone and for a page of paper: a wider screen only has more room.
_FRAMES = {"narrow": (280.0, 340.0), "wide": (590.0, 340.0)}
_SIDES: dict[float, str] = {-1: "left", 0: "center", 1: "right"}
_HEIGHTS: dict[float, str] = {-1: "bottom", 0: "middle", 1: "top"}


def speed_chart(group: Group, styles: Styles, published: Mapping[str, Published]) -> Chart:
    """Accuracy against speed with deviations over seeds, and the paper's points as hollow ones."""
    points = speed_points(group.rows, speed_deviations(group.rows, group.cells))
    hollow = published_spots(group.rows, published)
    traces = [_point(point, styles[point.label]) for point in points]
    traces += [_published(label, styles[label], spot) for label, spot in hollow.items()]
    axis = "training speed, SAM = 1" if is_against_sam(group.rows) else "training speed, images a second"
    layout = make_layout(axis, accuracy_axis(group.images, bool(hollow)))
    layout["hovermode"] = "closest"
    names = {width: _place(points, [*hollow.values()], frame) for width, frame in _FRAMES.items()}
    return Chart("Accuracy against speed", {"data": traces, "layout": layout, "names": names}, 420)


def _place(points: Sequence[SpeedPoint], hollow: Sequence[Spot], frame: tuple[float, float]) -> list[str | None]:
    """Where plotly is to write the name of each point; None where there is no room for it."""
    spots: list[Spot] = [*points, *hollow]
    across = _scaled([(spot.speed, spot.speed_std) for spot in spots], frame[0])
    up = _scaled([(spot.accuracy, spot.accuracy_std) for spot in spots], frame[1])
    sides = place(
        [(x, y) for (x, _), (y, _) in zip(across, up, strict=True)],
        [(x, y) for (_, x), (_, y) in zip(across, up, strict=True)],
        [(7.0 * min(len(point.label), LONGEST), 14.0) for point in points],
        frame,
    )
    return [f"{_HEIGHTS[side[1]]} {_SIDES[side[0]]}" if side else None for side in sides]


def _scaled(values: Sequence[tuple[float, float]], length: float) -> list[tuple[float, float]]:
    """Where values and their bars land on an axis that shows all of them."""
    low, high = min(value - bar for value, bar in values), max(value + bar for value, bar in values)
    unit = 0.9 * length / (high - low) if high > low else 0.0
    return [(0.05 * length + (value - low) * unit, bar * unit) for value, bar in values]


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
        "text": [plain_text(shortened(row.label, LONGEST))],
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
