"""The figures for papers: vector text, the page's colours, the same numbers."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from vsam.lab.comparison.rows import Row
from vsam.lab.paper.numbers import Published
from vsam.lab.report.downsample import width_for
from vsam.lab.report.figures.drawing import (
    LONGEST,
    MARKERS,
    Styles,
    add_legend,
    add_names,
    draw_metric,
    paper_look,
    save_figure,
    whole_numbers,
)
from vsam.lab.report.groups import Group, labels_of
from vsam.lab.report.metrics import SHARPNESS_METRICS, STEP_METRICS
from vsam.lab.report.points import Spot, accuracy_axis, published_spots, speed_axis, speed_spots
from vsam.lab.report.read import DrawnRun
from vsam.lab.report.style import Style, styles_for
from vsam.lab.text import shortened

__all__ = ["accuracy_against_speed", "learning_curves", "norms", "sample_strips", "save_figure", "sharpness_curves"]


def accuracy_against_speed(
    rows: Sequence[Row],
    *,
    name: str = "",
    deviations: Mapping[str, float] | None = None,
    published: Mapping[str, Published] | None = None,
    styles: Styles | None = None,
    images: str = "test",
) -> Figure:
    """Accuracy against training speed, with one standard deviation over seeds; the paper's figure 1.

    Args:
        rows: of one table, at least one.
        name: of the recipe, for the title.
        deviations: of the speed over seeds by label, from `speed_deviations`.
        published: the paper's numbers by label, drawn hollow; needs SAM among the rows.
        styles: by label, if several figures belong together.
        images: what accuracy was measured on, test or validation.
    """
    styles = styles or styles_for([row.label for row in rows])
    spots = speed_spots(rows, deviations or {})
    hollow = published_spots(rows, published or {})
    with paper_look():
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for label, spot in spots.items():
            _draw_spot(axes, spot, styles[label])
        for label, spot in hollow.items():
            _draw_spot(axes, spot, styles[label], fillstyle="none")
        axes.margins(0.08)
        axes.set_xlabel(speed_axis(rows))
        axes.set_ylabel(accuracy_axis(images, bool(hollow)).replace(" (", "\n("))
        title = _shorter(f"{name}: {_title(rows)}" if name else _title(rows), figure)
        axes.set_title(f"{title}\n{_explain_points(rows, [*hollow.values()])}", parse_math=False)
        add_names(figure, list(spots), styles)
    return figure


def learning_curves(group: Group, styles: Styles | None = None) -> Figure:
    """Accuracy and loss over epochs: the mean over seeds, with a band from lowest to highest.

    Args:
        group: of runs, at least one with metrics.
        styles: by label, if several figures belong together.
    """
    styles = styles or styles_for(group.labels)
    with paper_look():
        figure = Figure(figsize=(6.8, 4.9), layout="constrained")
        for axes, metric in zip(figure.subplots(2, 2, sharex=True).flat, group.epoch_metrics, strict=True):
            draw_metric(axes, group, metric, styles)
            whole_numbers(axes)
            if axes.get_subplotspec().is_last_row():
                axes.set_xlabel("epoch")
        width = max(run.curves["test_accuracy"].width for run in group.runs if "test_accuracy" in run.curves)
        figure.suptitle(
            f"{_shorter(group.title, figure)}\n{_explain_band(group, width, 'epoch')}", fontsize=9, parse_math=False
        )
        add_legend(figure, group.labels, styles)
    return figure


def norms(groups: Sequence[Group], styles: Styles | None = None) -> Figure:
    """Norms, sampling rate and change rates over steps, a column per group; the paper's figure 2.

    Args:
        groups: of runs, at least one of which has such metrics.
        styles: by label, if several figures belong together.
    """
    labels = [label for label in labels_of(groups) if any(_samples_of(group, label) for group in groups)]
    styles = styles or styles_for(labels)
    metrics = [metric for metric in STEP_METRICS if any(group.has(metric.key) for group in groups)]
    with paper_look():
        size = (max(5.4, 3.2 * len(groups)), 0.9 + 1.25 * len(metrics))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(metrics), len(groups), sharex="col", squeeze=False)
        for column, group in zip(grid.T, groups, strict=True):
            for axes, metric in zip(column, metrics, strict=True):
                draw_metric(axes, group, metric, styles)
                if axes is not grid[metrics.index(metric), 0]:
                    axes.set_ylabel("")
            title = _shorter(group.title, figure, len(groups))
            column[0].set_title(f"{title}\n{_explain_band(group, width_for(group.steps), 'step')}", parse_math=False)
            column[-1].set_xlabel("step")
            whole_numbers(column[-1])
        figure.align_ylabels(grid[:, 0])
        add_legend(figure, labels, styles)
    return figure


def sharpness_curves(group: Group, styles: Styles | None = None) -> Figure:
    """The top eigenvalue and SAM's sharpness over steps.

    Args:
        group: of runs, at least one of which recorded its sharpness.
        styles: by label, if several figures belong together.
    """
    styles = styles or styles_for(group.labels)
    metrics = [metric for metric in SHARPNESS_METRICS if group.has(metric.key)]
    watched = [run for run in group.runs if any(metric.key in run.curves for metric in metrics)]
    with paper_look():
        figure = Figure(figsize=(5.4, 0.9 + 1.6 * len(metrics)), layout="constrained")
        column = figure.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
        for axes, metric in zip(column, metrics, strict=True):
            draw_metric(axes, group, metric, styles)
        column[-1].set_xlabel("step")
        whole_numbers(column[-1])
        loose = f"; {group.loose[0]:,} of {group.loose[1]:,} eigenvalues not converged" if group.loose[0] else ""
        explained = _explain_band(group, width_for(group.steps), "step") + loose
        column[0].set_title(f"{_shorter(group.title, figure)}\n{explained}", parse_math=False)
        figure.align_ylabels(column)
        add_legend(figure, list(dict.fromkeys(run.label for run in watched)), styles)
    return figure


def sample_strips(group: Group, styles: Styles | None = None) -> Figure:
    """Which steps were sampled: a row per run, more opaque where more of a cell's steps were.

    Args:
        group: of runs, at least one of which has sampled steps.
        styles: by label, if several figures belong together.
    """
    styles = styles or styles_for(group.labels)
    runs = [(run, run.sampled) for run in group.runs if run.sampled is not None and len(run.sampled.index)]
    image = np.array([[to_rgba(styles[run.label].color, share) for share in sampled.share] for run, sampled in runs])
    width = runs[0][1].width
    with paper_look():
        figure = Figure(figsize=(6.8, 0.95 + 0.19 * len(runs)), layout="constrained")
        axes = figure.add_subplot()
        right = image.shape[1] * width + 0.5
        axes.imshow(image, aspect="auto", interpolation="nearest", extent=(0.5, right, len(runs) - 0.5, -0.5))
        axes.hlines(np.arange(len(runs) - 1) + 0.5, 0.5, right, color="white", linewidth=2)
        axes.set_xlim(0.5, runs[0][1].total + 0.5)
        axes.set_yticks(range(len(runs)), [_run_name(run) for run, _ in runs], parse_math=False)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.set_xlabel(f"step ({width:,} per cell)" if width > 1 else "step")
        whole_numbers(axes)
        axes.set_title(_shorter(group.title, figure), parse_math=False)
    return figure


def _samples_of(group: Group, label: str) -> bool:
    return any(run.sampled is not None and len(run.sampled.index) > 0 for run in group.runs if run.label == label)


def _explain_band(group: Group, width: int, unit: str) -> str:
    mean = f"mean of {width:,} {unit}s" if width > 1 else "mean"
    if group.most_seeds < 2:
        return f"{mean}, one seed" if width > 1 else "one seed"
    return f"{mean} over seeds, band from lowest to highest"


def _title(rows: Sequence[Row]) -> str:
    return f"{rows[0].model} on {rows[0].data}, {rows[0].steps:,} steps"


def _explain_points(rows: Sequence[Row], hollow: Sequence[Spot]) -> str:
    has_bars = max(row.seeds for row in rows) > 1
    ours = "bars: one standard deviation over seeds" if has_bars else "one seed"
    bars = ", its bars over three seeds" if not has_bars and any(spot.accuracy_std for spot in hollow) else ""
    return ours + (f"; hollow: the paper’s, best epoch{bars}" if hollow else "")


def _shorter(title: str, figure: Figure, columns: int = 1) -> str:
    """A title shortened to fit above one of the columns."""
    return shortened(title, int(14 * figure.get_figwidth() / columns))


def _run_name(run: DrawnRun) -> str:
    return f"{shortened(run.label, LONGEST)}, seed {run.seed}"


def _draw_spot(axes: Axes, spot: Spot, style: Style, fillstyle: Literal["full", "none"] = "full") -> None:
    axes.errorbar(
        spot.speed,
        spot.accuracy,
        xerr=spot.speed_std or None,
        yerr=spot.accuracy_std or None,
        fmt=MARKERS[style.marker],
        color=style.color,
        capsize=2.5,
        markersize=6,
        linewidth=1,
        fillstyle=fillstyle,
    )
