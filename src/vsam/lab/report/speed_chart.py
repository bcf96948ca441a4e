"""Accuracy against speed as an interactive figure: the paper's figure 1."""

from collections.abc import Mapping, Sequence
from typing import Any

from vsam.lab.paper.numbers import Published
from vsam.lab.report.charts import Chart, Styles, make_layout, plain_text, short
from vsam.lab.report.groups import Group
from vsam.lab.report.placing import place
from vsam.lab.report.points import SpeedPoint, is_against_sam, speed_deviations, speed_points
from vsam.lab.report.style import Style

__all__ = ["speed_chart"]

# Names are placed for a narrow screen: a wider one only has more room.
_NARROW = (270.0, 230.0)
_SIDES = {-1: "left", 0: "center", 1: "right"}
_HEIGHTS = {-1: "bottom", 0: "middle", 1: "top"}


def speed_chart(group: Group, styles: Styles, published: Mapping[str, Published]) -> Chart:
    """Accuracy against speed with deviations over seeds, and the paper's points as hollow ones."""
    points = speed_points(group.rows, speed_deviations(group.rows, group.cells))
    against_sam = is_against_sam(group.rows)
    sides = _place(points)
    traces = [_point(point, styles[point.label], side) for point, side in zip(points, sides, strict=True)]
    if against_sam:
        traces += [_published(label, styles[label], numbers) for label, numbers in published.items()]
    axis = "training speed, SAM = 1" if against_sam else "training speed, images a second"
    layout = make_layout(axis, "test accuracy of the last epoch, %")
    layout["hovermode"] = "closest"
    return Chart("Accuracy against speed", {"data": traces, "layout": layout}, 420)


def _place(points: Sequence[SpeedPoint]) -> list[str]:
    across = _scaled([(point.speed, point.speed_std) for point in points], _NARROW[0])
    up = _scaled([(point.accuracy, point.accuracy_std) for point in points], _NARROW[1])
    sides = place(
        [(x, y) for (x, _), (y, _) in zip(across, up, strict=True)],
        [(x, y) for (_, x), (_, y) in zip(across, up, strict=True)],
        [(7.0 * len(point.label), 14.0) for point in points],
        _NARROW,
    )
    return [f"{_HEIGHTS[height]} {_SIDES[side]}" for side, height in sides]


def _scaled(values: Sequence[tuple[float, float]], length: float) -> list[tuple[float, float]]:
    """Where values and their bars land on an axis that shows all of them."""
    low, high = min(value - bar for value, bar in values), max(value + bar for value, bar in values)
    unit = 0.9 * length / (high - low) if high > low else 0.0
    return [(0.05 * length + (value - low) * unit, bar * unit) for value, bar in values]


def _point(point: SpeedPoint, style: Style, side: str) -> dict[str, Any]:
    row = point.row
    spread = f"± {point.accuracy_std:.2f} %, {row.seeds} seeds" if row.seeds > 1 else "%, one seed"
    return {
        "type": "scatter",
        "mode": "markers+text",
        "meta": row.label,
        "name": plain_text(row.label),
        "x": [short(point.speed)],
        "y": [short(point.accuracy)],
        "error_x": {"array": [short(point.speed_std)], "visible": point.speed_std > 0, "thickness": 1.2, "width": 4},
        "error_y": {"array": [short(point.accuracy_std)], "visible": row.seeds > 1, "thickness": 1.2, "width": 4},
        "marker": {"color": style.color, "symbol": style.marker, "size": 11},
        "text": [plain_text(row.label)],
        "textposition": side,
        "cliponaxis": False,
        "customdata": [[short(row.ais), short(row.samples), row.steps, spread]],
        "hovertemplate": "%{y:.2f} %{customdata[3]}<br>speed %{x:.2f}, %{customdata[0]:,.0f} images/s<br>"
        "%{customdata[1]:,.0f} of %{customdata[2]:,} steps sampled",
    }


def _published(label: str, style: Style, numbers: Published) -> dict[str, Any]:
    speed = None if numbers.of_sam is None else numbers.of_sam / 100
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": label,
        "name": f"{plain_text(label)}, the paper's",
        "x": [speed],
        "y": [numbers.accuracy],
        "error_y": {"array": [numbers.std or 0], "visible": bool(numbers.std), "thickness": 1.2, "width": 4},
        "marker": {"color": style.color, "symbol": f"{style.marker}-open", "size": 11, "line": {"width": 2}},
        "hovertemplate": "%{y:.2f} %, best epoch<br>speed %{x:.2f}, other hardware",
    }
