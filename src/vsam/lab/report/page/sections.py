"""What the page shows for a group: facts, the table's lines, and the indices of its figures."""

from collections.abc import Sequence
from typing import Any

from vsam.lab.report.groups import Group
from vsam.lab.report.page.charts import (
    Chart,
    Styles,
    epoch_charts,
    sample_chart,
    sharpness_charts,
    speed_chart,
    step_charts,
)
from vsam.lab.report.page.results import published_numbers, result_lines
from vsam.lab.report.points import published_spots
from vsam.lab.report.scale import describe_scale, is_small, scale_line
from vsam.lab.report.summary import sentence

__all__ = ["make_section"]

_KEY = "test_accuracy"


def make_section(group: Group, styles: Styles, charts: list[Chart]) -> dict[str, Any]:
    """The template's values for a group; its figures are appended to `charts` and referred to by index."""

    def add(panels: Sequence[Chart | None]) -> list[int]:
        first = len(charts)
        charts.extend(chart for chart in panels if chart is not None)
        return list(range(first, len(charts)))

    published = published_numbers(group)
    return {
        "group": group,
        "published": published,
        "scale": scale_line(group),
        "facts": describe_scale(group),
        "is_small": is_small(group),
        "summary": sentence(group),
        "lines": result_lines(group, published),
        "speed": next(iter(add([speed_chart(group, styles, published) if group.rows else None])), None),
        "has_hollow": bool(published_spots(group.rows, published)),
        "epochs": add(epoch_charts(group, styles)),
        "steps": add(step_charts(group, styles)),
        "sharpness": add(sharpness_charts(group, styles)),
        "samples": next(iter(add([sample_chart(group, styles)])), None),
        # How many epochs and steps one point stands for.
        "epoch_width": max((run.curves[_KEY].width for run in group.runs if _KEY in run.curves), default=1),
        "step_width": max((run.sampled.width for run in group.runs if run.sampled is not None), default=1),
    }
