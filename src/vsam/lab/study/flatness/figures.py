"""The figures of the study of flatness."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from vsam.lab.report.figures.drawing import MARKERS, add_names, paper_look, whole_numbers
from vsam.lab.report.style import Style, place_of, styles_for
from vsam.lab.study.flatness.minima import MEASURES
from vsam.lab.study.flatness.statistics import correlations, ratios_to_sgd

__all__ = ["flatness_figures"]

Row = Mapping[str, Any]
_AGAINST = ("top_eigenvalue", "batch_ascent", "worst", "adaptive_worst")
_PLAIN, _TIMES = "#0072b2", ("#a6cbe3", "#6aaed6", "#3182bd", "#1a5f9e", "#08306b")


def flatness_figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Ratios to SGD, accuracy against sharpness, and PSF along a run, by the names of their files."""
    with paper_look():
        made = {}
        if any(any(row["minima"]) for row in rows):
            made = {"flatness-minima": _minima(rows), "flatness-accuracy": _accuracy(rows)}
        followed = [row for row in rows if row["psf"]]
        return made | ({"flatness-psf": _psf(followed)} if followed else {})


def _recipes(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["recipe"] for row in rows))


def _of(rows: Sequence[Row], recipe: str) -> list[Row]:
    return [row for row in rows if row["recipe"] == recipe]


def _styles(rows: Sequence[Row]) -> dict[str, Style]:
    return styles_for(sorted({row["label"] for row in rows}, key=lambda label: place_of(label, label)))


def _minima(rows: Sequence[Row]) -> Figure:
    """Each measure as a ratio to SGD's, with its interval over seeds; a panel per recipe."""
    recipes, styles = _recipes(rows), _styles(rows)
    labels = [label for label in styles if label != "sgd"]
    figure = Figure(figsize=(1.6 + 2.3 * len(recipes), 4.2), layout="constrained")
    for axes, recipe in zip(figure.subplots(1, len(recipes), sharey=True, squeeze=False)[0], recipes, strict=True):
        ratios = ratios_to_sgd(_of(rows, recipe), list(MEASURES))
        for place, label in enumerate(labels):
            _draw_ratios(axes, ratios, label, styles[label], (place - (len(labels) - 1) / 2) * 0.22)
        axes.axvline(1, color="#666666", linewidth=1)
        _logarithmic(axes)
        axes.set_yticks(range(len(MEASURES)), [text[0].upper() + text[1:] for text in MEASURES.values()])
        axes.set_title(recipe, parse_math=False)
        axes.set_xlabel("against SGD’s (SGD = 1)")
        axes.set_ylim(len(MEASURES) - 0.5, -0.5)
    most = max(len(row["seed_list"]) for row in rows)
    bars = f"bars: 95 % interval over {most} seeds; " if most > 1 else "one seed; "
    figure.suptitle(f"Sharpness of the minima\n{bars}left of the line is flatter than SGD", fontsize=9)
    add_names(figure, labels, styles)
    return figure


def _draw_ratios(axes: Axes, ratios: Mapping[str, Any], label: str, style: Style, shift: float) -> None:
    for place, measure in enumerate(MEASURES):
        found = ratios[measure].get(label)
        if found is None:
            continue
        if found["low"] is not None:
            axes.plot([found["low"], found["high"]], [place + shift] * 2, color=style.color, linewidth=1)
        axes.plot(found["ratio"], place + shift, MARKERS[style.marker], color=style.color, markersize=4)


def _accuracy(rows: Sequence[Row]) -> Figure:
    """Test accuracy against four of the measures, a dot per run; a line of panels per recipe."""
    recipes, styles = _recipes(rows), _styles(rows)
    figure = Figure(figsize=(8.4, 0.6 + 2.1 * len(recipes)), layout="constrained")
    grid = figure.subplots(len(recipes), len(_AGAINST), squeeze=False)
    for line, recipe in zip(grid, recipes, strict=True):
        own = _of(rows, recipe)
        found = correlations(own, _AGAINST)
        for axes, measure in zip(line, _AGAINST, strict=True):
            for row in own:
                pairs = zip(row["minima"], row["accuracies"], strict=True)
                points = [(m["measures"][measure]["value"], accuracy) for m, accuracy in pairs if m]
                look = styles[row["label"]]
                for value, accuracy in points:
                    axes.plot(value, accuracy, MARKERS[look.marker], color=look.color, markersize=4, alpha=0.85)
            _logarithmic(axes)
            axes.margins(0.12)
            rank = found[measure]
            text = f"rank correlation {rank['value']:+.2f}\n({rank['low']:+.2f} to {rank['high']:+.2f})" if rank else ""
            axes.set_title(text, fontsize=8)
            axes.set_xlabel(MEASURES[measure], fontsize=8)
            axes.tick_params(labelsize=7)
        line[0].set_ylabel(f"{recipe}\ntest accuracy, %", fontsize=8, parse_math=False)
    figure.suptitle("Does flatness go with accuracy? A mark is a run; intervals are 95 %", fontsize=9)
    add_names(figure, list(styles), styles)
    return figure


def _psf(rows: Sequence[Row]) -> Figure:
    """Above: cosine of an old PSF with the fresh one against its age. Below: PSF against ρ·H·g/‖g‖ over the run."""
    figure = Figure(figsize=(1.2 + 2.6 * len(rows), 5.4), layout="constrained")
    top, bottom = figure.subplots(2, len(rows), squeeze=False, sharey="row")
    for upper, lower, row in zip(top, bottom, rows, strict=True):
        _draw_ages(upper, row)
        steps = [one["step"] for one in row["psf"]["hessian"]]
        for key, name, color in (("cosine", "cosine", _PLAIN), ("error", "relative error", "#d55e00")):
            lower.plot(steps, [one[key] for one in row["psf"]["hessian"]], color=color, label=name, linewidth=1.2)
        lower.set_xlabel("step")
        whole_numbers(lower)
        lower.set_ylim(0, None)
    top[0].set_ylabel("cosine with the fresh PSF")
    bottom[0].set_ylabel("PSF against ρ·H·g/‖g‖")
    bottom[0].legend(fontsize=7, loc="best")
    figure.suptitle(
        "Above: an old PSF against the fresh ones of later mini-batches\n(bands: lowest to highest of a window). "
        "Below: PSF against its first order",
        fontsize=9,
    )
    return figure


def _draw_ages(axes: Axes, row: Row) -> None:
    windows = [window for window in row["psf"]["windows"] if window["ages"]]
    for place, window in enumerate(windows):
        ages = [one["age"] for one in window["ages"]]
        color = _TIMES[round(place * (len(_TIMES) - 1) / max(len(windows) - 1, 1))]
        axes.plot(ages, [one["cosine"] for one in window["ages"]], color=color, linewidth=1.3)
        low, high = ([one[key] for one in window["ages"]] for key in ("low", "high"))
        axes.fill_between(ages, low, high, color=color, alpha=0.08, linewidth=0)
        axes.plot(ages, [one["gradient_cosine"] for one in window["ages"]], ":", color=color, linewidth=1)
    names = [Line2D([], [], color=_TIMES[-1], label="PSF"), Line2D([], [], color=_TIMES[-1], ls=":", label="gradient")]
    first, last = windows[0]["step"], windows[-1]["step"]
    axes.legend(handles=names, fontsize=7, loc="upper right")
    axes.axhline(0, color="#666666", linewidth=0.8)
    axes.set_xlabel("age, steps")
    whole_numbers(axes)
    axes.set_title(f"{row['recipe']}\nlight to dark: steps {first:,} to {last:,}", fontsize=8, parse_math=False)


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axis = axes.xaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / max(low, 1e-300) < 50 else (1,), numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
