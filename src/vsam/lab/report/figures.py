"""The figures for papers: vector text, the page's colours, the same numbers."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from vsam.lab.compare import Row
from vsam.lab.paper.numbers import Published
from vsam.lab.report.downsample import width_for
from vsam.lab.report.drawing import MARKERS, Styles, add_legend, draw_metric, paper_look, save_figure, whole_numbers
from vsam.lab.report.groups import Group, labels_of
from vsam.lab.report.metrics import EPOCH_METRICS, STEP_METRICS
from vsam.lab.report.placing import place
from vsam.lab.report.points import SpeedPoint, is_against_sam, speed_points
from vsam.lab.report.style import Style, styles_for

__all__ = ["accuracy_against_speed", "learning_curves", "norms", "sample_strips", "save_figure"]

_ACROSS = {-1: "right", 0: "center", 1: "left"}
_UP = {-1: "top", 0: "center", 1: "bottom"}


def accuracy_against_speed(
    rows: Sequence[Row],
    *,
    name: str = "",
    deviations: Mapping[str, float] | None = None,
    published: Mapping[str, Published] | None = None,
    styles: Styles | None = None,
) -> Figure:
    """Test accuracy over training speed, with one standard deviation over seeds; the paper's figure 1.

    Args:
        rows: of one table, at least one.
        name: of the recipe, for the title.
        deviations: of the speed over seeds by label, as `speed_deviations` gives them.
        published: the paper's numbers by label, drawn hollow; they need SAM among the rows.
        styles: by label, where several figures belong together.
    """
    styles = styles or styles_for([row.label for row in rows])
    points = speed_points(rows, deviations or {})
    with paper_look():
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for point in points:
            _draw_point(axes, point, styles[point.label])
        if is_against_sam(rows):
            for label, numbers in (published or {}).items():
                _draw_published(axes, numbers, styles[label])
        axes.margins(0.08)
        axes.set_xlabel("training speed, SAM = 1" if is_against_sam(rows) else "training speed, images a second")
        axes.set_ylabel("test accuracy of the last epoch, %")
        bars = "bars: one standard deviation over seeds" if max(row.seeds for row in rows) > 1 else "one seed"
        hollow = "; hollow: the paper’s, best epoch" if published and is_against_sam(rows) else ""
        title = f"{name}: {_title(rows)}" if name else _title(rows)
        axes.set_title(f"{title}\n{bars}{hollow}", parse_math=False)
        _name_points(figure, axes, points)
    return figure


def learning_curves(group: Group, styles: Styles | None = None) -> Figure:
    """Accuracy and loss over the epochs, the mean over seeds with a band from the lowest to the highest.

    Args:
        group: of runs, at least one with metrics.
        styles: by label, where several figures belong together.
    """
    styles = styles or styles_for(group.labels)
    with paper_look():
        figure = Figure(figsize=(6.8, 4.9), layout="constrained")
        for axes, metric in zip(figure.subplots(2, 2, sharex=True).flat, EPOCH_METRICS, strict=True):
            draw_metric(axes, group, metric, styles)
            whole_numbers(axes)
            if axes.get_subplotspec().is_last_row():
                axes.set_xlabel("epoch")
        width = max(run.curves["test_accuracy"].width for run in group.runs if "test_accuracy" in run.curves)
        figure.suptitle(f"{group.title}\n{_explain_band(width, 'epoch')}", fontsize=9, parse_math=False)
        add_legend(figure, group.labels, styles)
    return figure


def norms(groups: Sequence[Group], styles: Styles | None = None) -> Figure:
    """Norms, sampling rate and change rates over the steps, a column a group; the paper's figure 2.

    Args:
        groups: of runs, at least one, of which at least one has such metrics.
        styles: by label, where several figures belong together.
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
            column[0].set_title(f"{group.title}\n{_explain_band(width_for(group.steps), 'step')}", parse_math=False)
            column[-1].set_xlabel("step")
            whole_numbers(column[-1])
        figure.align_ylabels(grid[:, 0])
        add_legend(figure, labels, styles)
    return figure


def sample_strips(group: Group, styles: Styles | None = None) -> Figure:
    """Where the samples fell: a row a run, the fuller the more of a cell's steps were sampled.

    Args:
        group: of runs, of which at least one has sampled steps.
        styles: by label, where several figures belong together.
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
        axes.set_yticks(range(len(runs)), [f"{run.label}, seed {run.seed}" for run, _ in runs], parse_math=False)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.set_xlabel(f"step (a cell is {width:,})" if width > 1 else "step")
        whole_numbers(axes)
        axes.set_title(group.title, parse_math=False)
    return figure


def _samples_of(group: Group, label: str) -> bool:
    return any(run.sampled is not None and len(run.sampled.index) > 0 for run in group.runs if run.label == label)


def _explain_band(width: int, unit: str) -> str:
    mean = f"mean of {width:,} {unit}s" if width > 1 else "mean"
    return f"{mean} over seeds, band from the lowest to the highest"


def _title(rows: Sequence[Row]) -> str:
    return f"{rows[0].model} on {rows[0].data}, {rows[0].steps:,} steps"


def _draw_point(axes: Axes, point: SpeedPoint, style: Style) -> None:
    axes.errorbar(
        point.speed,
        point.accuracy,
        xerr=point.speed_std or None,
        yerr=point.accuracy_std or None,
        fmt=MARKERS[style.marker],
        color=style.color,
        capsize=2.5,
        markersize=6,
        linewidth=1,
    )


def _draw_published(axes: Axes, numbers: Published, style: Style) -> None:
    if numbers.of_sam is not None:
        axes.plot(numbers.of_sam / 100, numbers.accuracy, MARKERS[style.marker], color=style.color, fillstyle="none")


def _name_points(figure: Figure, axes: Axes, points: Sequence[SpeedPoint]) -> None:
    names = [_name(axes, point) for point in points]
    figure.draw_without_rendering()  # only now is it known where everything is
    frame, gap = axes.get_window_extent(), 5.0
    spots = axes.transData.transform([(point.speed, point.accuracy) for point in points])
    ends = axes.transData.transform([(p.speed + p.speed_std, p.accuracy + p.accuracy_std) for p in points])
    boxes = [name.get_window_extent() for name in names]
    sides = place(
        [(float(x - frame.x0), float(y - frame.y0)) for x, y in spots],
        [(float(x), float(y)) for x, y in ends - spots],
        [(box.width, box.height) for box in boxes],
        (frame.width, frame.height),
        gap * figure.dpi / 72,
    )
    for name, (across, up) in zip(names, sides, strict=True):
        name.set(position=(gap * across, gap * up), ha=_ACROSS[int(across)], va=_UP[int(up)])


def _name(axes: Axes, point: SpeedPoint) -> Annotation:
    spot = (point.speed, point.accuracy)
    return axes.annotate(point.label, spot, (0, 0), textcoords="offset points", fontsize=8, parse_math=False)
