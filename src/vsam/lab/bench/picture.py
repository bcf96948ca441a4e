"""The picture of a benchmark: what each method adds to its passes, and the whole step relative to the base alone."""

import io
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from vsam.lab.bench.results import Row

__all__ = ["draw", "save"]

_BASE, _OURS, _PEERS, _GOAL = "#808080", "#0072b2", "#d55e00", "#009e73"


def draw(rows: Sequence[Row], caption: str) -> Figure:
    """Two panels per workload and base: added milliseconds, and multiples of the base alone."""
    places = list(dict.fromkeys((row.workload, row.base) for row in rows))
    heights = [max(2.0, 0.24 * sum((row.workload, row.base) == place for row in rows) + 0.9) for place in places]
    figure = Figure(figsize=(11, sum(heights) + 0.8), layout="constrained")
    panels = figure.subplots(len(places), 2, squeeze=False, height_ratios=heights)
    for (workload, base), (left, right) in zip(places, panels, strict=True):
        own = [row for row in rows if (row.workload, row.base) == (workload, base)][::-1]
        added = [row for row in own if row.added is not None and row.method != "sgd"]
        _bars(left, added, lambda row: row.added, 1e3)
        left.set_title(f"{workload}, base {base}: added per step, ms", fontsize=9, loc="left")
        _bars(right, own, lambda row: row.to_base, 1)
        right.axvline(1, color="black", linewidth=0.8)
        right.set_title("whole step, base alone = 1", fontsize=9, loc="left")
        _mark_goals(left, right, added, own)
    words = "Bars: medians; lines: quartiles. Blue: vsam; orange: pytorch_optimizer; green: goal.\n" + caption
    figure.suptitle("\n".join(fill(line, 150) for line in words.splitlines()), fontsize=8)
    return figure


def save(figure: Figure, kind: str) -> bytes:
    """The picture as svg or png, without a date."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=80, metadata={"Date": None} if kind == "svg" else {"Software": None})
    return buffer.getvalue()


def _bars(axes: Any, rows: Sequence[Row], value: Callable[[Row], Any], scale: float) -> None:
    spreads = [value(row) for row in rows]
    middles = [scale * spread.median for spread in spreads]
    reach = [
        [max(0.0, middle - scale * spread.low) for middle, spread in zip(middles, spreads, strict=True)],
        [max(0.0, scale * spread.high - middle) for middle, spread in zip(middles, spreads, strict=True)],
    ]
    colors = [_PEERS if row.is_peer else _BASE if row.method == "sgd" else _OURS for row in rows]
    places = range(len(rows))
    axes.barh(places, middles, xerr=reach, color=colors, height=0.7, error_kw={"elinewidth": 1, "ecolor": "#444444"})
    axes.set_yticks(places, [f"{row.label}, {row.kind}" for row in rows], fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _mark_goals(left: Any, right: Any, added: Sequence[Row], own: Sequence[Row]) -> None:
    """A green line across each bar that has a goal; goals for added time are relative to the best peer."""
    for axes, rows, kind in ((left, added, "sampled"), (right, own, "plain")):
        for place, row in enumerate(rows):
            goal = row.goal if row.kind == kind else None
            if goal is not None and kind == "sampled":
                goal = _in_milliseconds(row, goal)
            if goal is not None:
                axes.plot([goal, goal], [place - 0.45, place + 0.45], color=_GOAL, linewidth=2)


def _in_milliseconds(row: Row, goal: float) -> float | None:
    if row.to_peer is None or row.added is None or row.to_peer.value == 0:
        return None
    return 1e3 * goal * row.added.median / row.to_peer.value
