"""The picture of a search: validation accuracy against each setting."""

import io
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from vsam.lab.tune.plan import Plan
from vsam.lab.tune.results import Result, best_first, count_states, standard_error
from vsam.lab.tune.space import Range

__all__ = ["accuracy_against_settings"]

_BLUE, _GREY, _RED, _GREEN = "#1f6fb4", "#888888", "#c03030", "#2a8a3a"


def accuracy_against_settings(plan: Plan, results: Sequence[Result], num_validation: int) -> bytes:
    """A PNG with one panel per setting; pruned trials are hollow, failed ones are at the bottom."""
    columns = min(3, len(plan.space))
    rows = -(-len(plan.space) // columns)
    figure = Figure(figsize=(max(5.2, 3.6 * columns), 3.6 * rows + 0.9), dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
    for panel, one in zip(grid, plan.space, strict=False):
        _draw(panel, plan, one, results, num_validation)
    for panel in grid[len(plan.space) :]:
        panel.remove()
    for row in range(rows):
        grid[row * columns].set_ylabel("accuracy on held-out training images, %")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2 * columns, fontsize=8, frameon=False)
    recipe = plan.recipe
    title = f"{recipe.method} in {recipe.name}: {recipe.model} on {recipe.data.name}"
    figure.suptitle(f"{title}\n{count_states(results)}", fontsize=10, parse_math=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _draw(panel: Any, plan: Plan, one: Range, results: Sequence[Result], num_validation: int) -> None:
    def plot(chosen: Sequence[Result], marker: str, label: str, **style: Any) -> None:
        shown = [result for result in chosen if result.accuracy is not None]
        if shown:
            where = [result.settings[one.key] for result in shown]
            panel.plot(where, [result.accuracy for result in shown], marker, label=label, **style)

    best = best_first(results)[0]
    error = standard_error(best.accuracy or 0, num_validation)
    low, high = (best.accuracy or 0) - error, (best.accuracy or 0) + error
    panel.axhspan(low, high, color=_GREEN, alpha=0.1, lw=0, label="best ± its standard error")
    plot([r for r in results if r.state == "complete"], "o", "complete", color=_BLUE, alpha=0.8)
    pruned = [r for r in results if r.state == "pruned"]
    plot(pruned, "o", "pruned, at its last epoch", color=_GREY, fillstyle="none")
    plot([best], "*", "best", color=_GREEN, markersize=14)
    if plan.tries_own:
        own = [r for r in results if r.number == 0 and r.state != "failed"]
        plot(own, "s", "the recipe's own", color="black", fillstyle="none", markersize=9)
    if failed := [r.settings[one.key] for r in results if r.state == "failed" and one.key in r.settings]:
        panel.plot(failed, [0.03] * len(failed), "x", color=_RED, transform=panel.get_xaxis_transform(), label="failed")
    _set_axis(panel, one)


def _set_axis(panel: Any, one: Range) -> None:
    if one.log:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlim(one.low / 1.1, one.high * 1.1)
    else:
        margin = 0.04 * (one.high - one.low)
        panel.set_xlim(one.low - margin, one.high + margin)
    panel.margins(y=0.12)
    panel.set_xlabel(one.key)
    panel.grid(alpha=0.3)
