"""Figures of results, drawn once by matplotlib: SVG for pages, SVG and PNG files for papers."""

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from vsam.lab.files import write_atomically
from vsam.lab.rows import Row
from vsam.lab.text import one_line, shortened

__all__ = [
    "PALETTE",
    "Curve",
    "Point",
    "Style",
    "Styles",
    "bars",
    "contours",
    "cost_figure",
    "curves",
    "drawing_style",
    "points",
    "save",
    "strips",
    "styles_for",
    "svg",
]

PALETTE = (
    ("#767676", "#9a9a9a"),
    ("#215d9e", "#3c98ff"),
    ("#ff6100", "#ec5e24"),
    ("#22aa62", "#30e188"),
    ("#7a2258", "#d0bbff"),
    ("#6d5407", "#fffc3c"),
    ("#606ee5", "#b2fcee"),
    ("#37159d", "#6734ff"),
)
"""Colours on light and on dark paper. Any two differ for every kind of colour vision, and stand out from the paper."""

_PLACES = {"sgd": 0, "adamw": 0, "sam": 1, "vsam": 2, "vsam-budget": 3}
_MARKERS = "osD^Pv*X"
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.2, 1, 1.2)))
_INK, _RULE = "#1d2126", "#d9dde3"
_SIZE = (3.7, 2.6)  # inches: readable when a phone shows one panel in a row
_LONGEST = 22  # characters of a name beside its curve
_LOOK: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vsam",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "font.size": 8.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
}
Numbers = NDArray[np.float64]
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Style:
    """Style of a label in all figures of a page.

    Args:
        number: of the label on the page. `m<number>` is the class of everything that is drawn for it.
        place: of its colour in the palette.
        marker, dash: for matplotlib.
    """

    number: int
    place: int
    marker: str
    dash: Any

    @property
    def color(self) -> str:
        """The colour on light paper."""
        return PALETTE[self.place][0]


Styles = Mapping[str, Style]


@dataclass(frozen=True)
class Curve:
    """A line with the label at its end, and a band if it has one. A loose line is dotted and has no label."""

    label: str
    x: ArrayLike
    y: ArrayLike
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    is_loose: bool = False


@dataclass(frozen=True)
class Point:
    """A point with error bars. A hollow one is not ours and has no label."""

    label: str
    x: float
    y: float
    x_error: float = 0.0
    y_error: float = 0.0
    is_hollow: bool = False


def styles_for(labels: Iterable[str]) -> dict[str, Style]:
    """Return a style per label. Eight labels have eight colours. After that, markers and dashes differ.

    Args:
        labels: of all figures that belong together, in the order of the page.
    """
    styles: dict[str, Style] = {}
    used = [0] * len(PALETTE)
    names = list(dict.fromkeys(labels))
    for label in sorted(names, key=lambda label: label not in _PLACES):
        free = min(range(len(PALETTE)), key=lambda place: (used[place], place < 4, place))
        wanted = _PLACES.get(label, free)
        place = free if used[wanted] else wanted
        turn = used[place]
        number = names.index(label)
        styles[label] = Style(number, place, _MARKERS[(place + turn) % len(_MARKERS)], _DASHES[turn % len(_DASHES)])
        used[place] += 1
    return {label: styles[label] for label in names}


def curves(
    lines: Sequence[Curve],
    styles: Styles,
    *,
    x: str,
    y: str,
    bounds: tuple[float | None, float | None] = (None, None),
    is_log: bool = False,
    is_count: bool = True,
) -> Figure:
    """Draw curves, each labelled at its end.

    Args:
        lines: at least one, with at least one point each.
        styles: by label.
        x, y: the names of the axes.
        bounds: of the y axis. None fits that end to the data.
        is_log: a logarithmic y axis.
        is_count: x counts epochs or steps, so it has integer ticks.
    """
    with _page(len(lines)) as (figure, axes):
        for line in lines:
            style = styles[line.label]
            is_point = np.size(line.x) == 1
            [drawn] = axes.plot(line.x, line.y, color=style.color, ls=":" if line.is_loose else style.dash)
            drawn.set(gid=_gid(style), marker=style.marker if is_point else "", lw=0.9 if line.is_loose else 1.4)
            if line.low is not None and line.high is not None:
                band = axes.fill_between(line.x, line.low, line.high, color=style.color, alpha=0.16, lw=0)
                band.set_gid(_gid(style))
        axes.set(xlabel=x, ylabel=y, yscale="log" if is_log else "linear")
        if bounds != (None, None):
            axes.set_ylim(*bounds)
        if not is_log:
            axes.yaxis.set_major_formatter("{x:,.5g}")  # also where values differ by rounding alone
        axes.margins(x=0.01)
        if is_count:
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
            axes.xaxis.set_major_formatter("{x:,.0f}")
        ends = {line.label: (np.ravel(line.x)[-1], np.ravel(line.y)[-1]) for line in lines if not line.is_loose}
        _label_ends(figure, axes, ends, styles)
    return figure


def points(found: Sequence[Point], styles: Styles, *, x: str, y: str) -> Figure:
    """Draw points with error bars, each labelled beside it.

    Args:
        found: at least one.
        styles: by label.
        x, y: the names of the axes.
    """
    with _page(len(found)) as (figure, axes):
        for point in found:
            style = styles[point.label]
            errors = point.y_error or None, point.x_error or None
            look: dict[str, Any] = {"color": style.color, "mfc": "none" if point.is_hollow else style.color}
            drawn = axes.errorbar(point.x, point.y, *errors, fmt=style.marker, capsize=2, elinewidth=1, **look)
            for part in drawn.get_children():
                part.set_gid(_gid(style))
        axes.margins(0.1)
        axes.set(xlabel=x, ylabel=y)
        _label_points(figure, axes, [point for point in found if not point.is_hollow], styles)
    return figure


def bars(found: Mapping[str, tuple[float, float, bool]], styles: Styles, *, x: str) -> Figure:
    """Draw a bar with an error per label. One that has not converged is hollow.

    Args:
        found: value, error and whether it converged, by label.
        styles: by label.
        x: the name of the axis.
    """
    with _page(len(found)) as (figure, axes):
        for row, (label, (value, error, is_converged)) in enumerate(found.items()):
            color = styles[label].color
            [bar] = axes.barh(row, value, 0.7, color=color if is_converged else "none", edgecolor=color)
            drawn = axes.errorbar(value, row, xerr=error if np.isfinite(error) else None, color=_INK, capsize=2, lw=1)
            for part in (bar, *drawn.get_children()):
                part.set_gid(_gid(styles[label]))
        axes.set_yticks(range(len(found)), [shortened(label, _LONGEST) for label in found], parse_math=False)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(x)
    return figure


def strips(shares: Mapping[str, Numbers], styles: Styles, *, x: str, total: int) -> Figure:
    """Draw a row per label whose height is the fraction of sampled steps.

    Args:
        shares: from 0 to 1, for equal parts of the run, by label.
        styles: by label.
        x: the name of the axis.
        total: where the axis ends.
    """
    with _page(len(shares)) as (figure, axes):
        for row, (label, share) in enumerate(shares.items()):
            edges = np.linspace(0, total, len(share) + 1)
            filled = axes.stairs(len(shares) - row + 0.85 * share, edges, baseline=len(shares) - row, fill=True)
            filled.set(color=styles[label].color, lw=0, gid=_gid(styles[label]))
        names = [shortened(label, _LONGEST) for label in shares]
        axes.set_yticks(len(shares) - np.arange(len(shares)) + 0.4, names, parse_math=False)
        axes.set(xlabel=x, xlim=(0, total), ylim=(0.95, len(shares) + 1))
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure


def cost_figure(
    rows: Sequence[Row], styles: Styles | None = None, hollow: Sequence[Point] = (), images: str = "test"
) -> Figure:
    """Draw accuracy against passes per step, with one standard deviation over seeds.

    Args:
        rows: of one table, at least one.
        styles: by label, if several figures belong together.
        hollow: points of others.
        images: what accuracy was measured on.
    """
    ours = [Point(row.label, 2 / row.ideal_ratio, row.accuracy, y_error=row.accuracy_std) for row in rows]
    styles = styles or styles_for(row.label for row in rows)
    return points([*ours, *hollow], styles, x="gradient passes per step", y=f"{images} accuracy, %")


def contours(axis: Numbers, values: Numbers, levels: Sequence[float], *, unit: str) -> Figure:
    """Draw the contours of a positive function on a square around 0, where a cross is.

    Args:
        axis: the positions along both axes.
        values: the first dimension is along the x axis.
        levels: shared by all figures that belong together.
        unit: of the values.
    """
    with _page(1) as (figure, axes):
        inside = np.clip(values.T, levels[0], levels[-1])
        filled = axes.contourf(axis, axis, inside, levels=levels, norm="log", cmap="viridis")
        axes.contour(axis, axis, inside, levels=levels, colors="white", linewidths=0.4)
        axes.plot(0, 0, "+", color=PALETTE[2][0], markersize=9, markeredgewidth=1.8)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        bar = figure.colorbar(filled, ax=axes, label=unit, ticks=levels[::3])
        bar.ax.set_yticklabels([f"{level:.2g}" for level in levels[::3]])
        bar.ax.minorticks_off()
    return figure


def svg(figure: Figure, styles: Styles, name: str) -> str:
    """Return a figure as an SVG element for a page, whose style sheet decides on colours and on what is shown.

    Args:
        figure: from this module.
        styles: of all labels on the page.
        name: unique on the page, part of the element's ids.
    """
    text = _drawn(figure, "svg").decode()
    text = text[text.index("<svg") :].replace(_INK, "currentColor").replace(_RULE, "var(--rule)")
    for place in {style.place for style in styles.values()}:
        text = text.replace(PALETTE[place][0], f"var(--c{place})")
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL).replace(
        "xlink:href", "href"
    )
    text = re.sub(r' id="of-(m\d+)"', r' class="\1"', text)
    text = re.sub(r' id="[\w.]+_\d+"', "", text)  # of groups, which no other element refers to
    text = re.sub(r'( id="|#)([a-z][0-9a-f]{10})\b', rf"\1{name}-\2", text)
    return re.sub(
        r'<svg [^>]*?(viewBox="[^"]*")[^>]*>',
        r'<svg xmlns="http://www.w3.org/2000/svg" \1 aria-hidden="true">',
        text,
        count=1,
    )


def save(figure: Figure, path_without_suffix: Path) -> list[Path]:
    """Write a figure atomically as SVG and PNG, and return the files. The same figure gives the same bytes."""
    paths = [path_without_suffix.with_name(f"{path_without_suffix.name}.{kind}") for kind in ("svg", "png")]
    for path in paths:
        write_atomically(path, _drawn(figure, path.suffix[1:], facecolor="white"))
    return paths


def _drawn(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with drawing_style():
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata, **options)
    return buffer.getvalue()


@contextmanager
def drawing_style() -> Iterator[None]:
    """Use our settings of matplotlib instead of the user's."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_LOOK)
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a box is drawn instead
        yield


@contextmanager
def _page(num_labels: int) -> Iterator[tuple[Figure, Axes]]:
    """Make an empty figure, high enough for its labels."""
    with drawing_style():
        figure = Figure(figsize=(_SIZE[0], max(_SIZE[1], 0.7 + 0.15 * num_labels)), layout="constrained")
        yield figure, figure.add_subplot()


def _gid(style: Style) -> str:
    return f"of-m{style.number}"


def _label_ends(figure: Figure, axes: Axes, ends: Mapping[str, tuple[float, float]], styles: Styles) -> None:
    """Write each label to the right of its curve's end, moved up or down if another one is there."""
    axes.autoscale_view()
    gap = 0.15 / (figure.get_figheight() - 0.6)  # inches of a line of text, and of everything but the panel
    wanted = {
        label: axes.transAxes.inverted().transform(axes.transData.transform(end))[1] for label, end in ends.items()
    }
    order = sorted(wanted, key=wanted.__getitem__)
    places = _spread([wanted[label] for label in order], gap)
    for label, place in zip(order, places, strict=True):
        line = {"arrowstyle": "-", "color": styles[label].color, "lw": 1, "relpos": (0, 0.5), "shrinkB": 0}
        text = axes.annotate(
            shortened(one_line(label), _LONGEST),
            ends[label],
            (1.06, place),
            textcoords="axes fraction",
            va="center",
            parse_math=False,
            annotation_clip=False,
            arrowprops=line,
        )
        text.set_gid(_gid(styles[label]))
        if text.arrow_patch is not None:
            text.arrow_patch.set_gid(_gid(styles[label]))


def _spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Move sorted positions as little as a sweep up and a sweep down do, so that they are `gap` apart within 0 … 1."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + gap) if places else max(place, 0.0))
    top = 1.0
    for i in reversed(range(len(places))):
        places[i] = top = min(places[i], top)
        top -= gap
    return places


def _label_points(figure: Figure, axes: Axes, found: Sequence[Point], styles: Styles) -> None:
    """Write each label beside its point, where nothing is in the way."""
    figure.draw_without_rendering()
    inch = figure.dpi
    centres = [axes.transData.transform((point.x, point.y)) for point in found]
    taken: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in centres]
    for point, (x, y) in zip(found, centres, strict=True):
        text = shortened(one_line(point.label), _LONGEST)
        width, height = (0.066 * len(text) + 0.02) * inch, 0.14 * inch
        sides = (x + 0.07 * inch, x - 0.07 * inch - width, x - width / 2)
        lows = [y + (up - 0.5) * height for up in (0, 1, -1, 2, -2, 3, -3, 4, -4)]
        boxes = [(left, low, left + width, low + height) for low in lows for left in sides]
        box = next((box for box in boxes if _is_free(box, axes.bbox.extents, taken)), boxes[0])
        taken.append(box)
        # Anchored on the side of the point, since the width is an estimate.
        side, anchor = ((box[0], "left"), (box[2], "right"), (x, "center"))[boxes.index(box) % len(sides)]
        left, middle = axes.transAxes.inverted().transform((side, box[1] + height / 2))
        gid = _gid(styles[point.label])
        axes.text(left, middle, text, transform=axes.transAxes, ha=anchor, va="center", parse_math=False, gid=gid)


def _is_free(box: Box, outer: Sequence[float], taken: Sequence[Box]) -> bool:
    """Return True if a box is within the outer one and does not overlap any other."""
    is_inside = outer[0] <= box[0] and box[2] <= outer[2] and outer[1] <= box[1] and box[3] <= outer[3]
    return is_inside and not any(
        box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in taken
    )
