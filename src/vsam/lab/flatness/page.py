"""The page of `vsam sharpness`: one file that works offline, with bars, densities and slices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import vsam
from vsam.lab.flatness.figures import density_curve, levels, shared_range
from vsam.lab.flatness.slices import Slices
from vsam.lab.flatness.texts import MEASURES, cell, estimate_of, setting_of
from vsam.lab.report.page.charts import Chart, Styles, short, words
from vsam.lab.report.page.page import _DASHES, _POLICY, _SHAPES, _resource, _script_json
from vsam.lab.text import printable
from vsam.sharpness import Landscape, Sharpness

__all__ = ["make_page"]


@dataclass(frozen=True)
class _Section:
    title: str
    charts: list[int]
    caption: str


def make_page(
    found: Mapping[str, Sharpness], folders: Mapping[str, Path], styles: Styles, slices: Slices | None
) -> str:
    """The page as HTML.

    Args:
        found: the measurements, by run name.
        folders: of the runs, by name.
        styles: of the runs, by name.
        slices: through the loss, if any.
    """
    charts: list[Chart] = []
    sections: list[_Section] = []

    def add(title: str, made: Sequence[Chart], caption: str) -> None:
        if made:
            sections.append(_Section(title, list(range(len(charts), len(charts) + len(made))), caption))
            charts.extend(made)

    add("Side by side", [_bars(found, styles, name) for name in _measured(found)], _BARS)
    add("Spectral density of the Hessian", _densities(found, styles), _DENSITY)
    if slices is not None:
        add("Along a line", [_lines("Slices through the loss", slices.lines, styles, "position")], _LINES)
        add("Contours", [_plane(slices, name, "contour", styles) for name in slices.planes], _CONTOURS)
        add("Surfaces", [_plane(slices, name, "surface", styles) for name in slices.planes], _SURFACES)
        if slices.between:
            between = _lines(f"From {next(iter(found))} to the other runs", slices.between, styles, "position")
            add("Between runs", [between], _BETWEEN)
    environment = Environment(
        loader=PackageLoader("vsam.lab.flatness", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    specs = {
        "charts": [{"spec": chart.spec, "height": chart.height} for chart in charts],
        "look": {"shapes": _SHAPES, "dashes": _DASHES},
    }
    own = Markup((resources.files("vsam.lab.flatness") / "landscape.js").read_text(encoding="utf-8"))
    return environment.get_template("page.html").render(
        title="How flat are these minima?" if len(found) > 1 else "How flat is this minimum?",
        setting=setting_of(found),
        policy=_POLICY,
        css=_resource("page.css"),
        styles=styles,
        headings=["loss", *(MEASURES[name] for name in _measured(found))],
        rows=[(name, [f"{one.loss:.4g}", *_cells(one, _measured(found))]) for name, one in found.items()],
        charts=charts,
        sections=sections,
        folders=[(name, str(path)) for name, path in folders.items()],
        version=vsam.__version__,
        specs=_script_json(specs),
        scripts=[_resource("chart.js"), own, _resource("page.js")],
    )


def _measured(found: Mapping[str, Sharpness]) -> list[str]:
    return [name for name in MEASURES if any(getattr(one, name) is not None for one in found.values())]


def _cells(one: Sharpness, measures: Sequence[str]) -> list[str]:
    return [cell(estimate_of(one, name)) for name in measures]


def _bars(found: Mapping[str, Sharpness], styles: Styles, measure: str) -> Chart:
    series, texts = [], {}
    for name, one in found.items():
        estimate = estimate_of(one, measure)
        if estimate is None or not math.isfinite(estimate.value):
            continue
        error = estimate.error if math.isfinite(estimate.error) else 0.0
        state = "converged" if estimate.converged else "not converged"
        lines = [f"{estimate.value:.4g} ± {estimate.error:.2g}", estimate.error_kind, state]
        numbers = {"value": short(estimate.value), "error": short(error), "converged": estimate.converged}
        series.append({"label": name, "name": name, "color": styles[name].color, "lines": lines, **numbers})
        texts[name] = cell(estimate)
    spec = {"kind": "bars", "x": MEASURES[measure], "y": "", "fractional": True, "series": series}
    return Chart(MEASURES[measure], f"{MEASURES[measure]}: {words(texts)}.", spec, 60 + 26 * len(series))


def _densities(found: Mapping[str, Sharpness], styles: Styles) -> list[Chart]:
    known = {name: one.density for name, one in found.items() if one.density is not None}
    if not known:
        return []
    where = shared_range(list(known.values()))
    curves = {name: density_curve(one, *where) for name, one in known.items()}
    low = max(max(y) for _, y in curves.values()) * 1e-7
    series = [
        _curve(name, styles, x.tolist(), [math.log10(max(value, low)) for value in y])
        for name, (x, y) in curves.items()
    ]
    spec = {"kind": "curves", "x": "eigenvalue", "y": "log₁₀ of the density", "fractional": True}
    spec |= {"bounds": [None, None], "series": series}
    tops = {name: f"up to {one.nodes.max().item():.3g}" for name, one in known.items()}
    return [Chart("Density", f"Eigenvalues: {words(tops)}.", spec, 360)]


def _lines(title: str, lines: Mapping[str, Landscape], styles: Styles, axis: str) -> Chart:
    series = [
        _curve(name, styles, line.axes[0][is_finite].tolist(), line.losses[is_finite].tolist())
        for name, line in lines.items()
        if bool((is_finite := line.losses.isfinite()).any())
    ]
    spec = {
        "kind": "curves",
        "x": axis,
        "y": "loss, nats",
        "bounds": [None, None],
        "fractional": True,
        "series": series,
    }
    highest = {name: f"{line.losses.max().item():.3g}" for name, line in lines.items()}
    return Chart(title, f"Highest loss on the line: {words(highest)}.", spec, 360)


def _curve(name: str, styles: Styles, x: list[float], y: list[float]) -> dict[str, Any]:
    look = {"color": styles[name].color, "dash": styles[name].dash, "width": 2}
    return {"label": name, "name": name, "x": [short(one) for one in x], "y": [short(one) for one in y], **look}


def _plane(slices: Slices, name: str, kind: str, styles: Styles) -> Chart:
    plane = slices.planes[name]
    losses = [[short(loss) if math.isfinite(loss) else None for loss in row] for row in plane.losses.tolist()]
    spec = {
        "kind": kind,
        "x": "first direction",
        "y": "second direction",
        "fractional": True,
        "axis": [short(one) for one in plane.axes[0].tolist()],
        "losses": losses,
        "levels": levels(slices.planes),
        "series": [{"label": name, "color": styles[name].color}],
    }
    finite = plane.losses[plane.losses.isfinite()]
    ends = f"from {finite.min().item():.3g} to {finite.max().item():.3g}"
    return Chart(name, f"Loss of {name} on the plane, {ends}.", spec, 380)


_BARS = "Lines on the bars are errors. Pale bars have not converged. Hover over a bar for its numbers."
_DENSITY = "By stochastic Lanczos quadrature, each node smoothed by a hundredth of the range. Drag across to zoom."
_LINES = "Along one random direction, filter-normalised, the same for all runs before scaling; the run is at 0."
_CONTOURS = (
    "Two random directions, filter-normalised, the same for all runs; colours mean the same loss in all of them, on a "
    "logarithmic scale. The cross is the run."
)
_SURFACES = "The same planes. Drag a surface to rotate it. Height is the log of the loss, the same scale in all."
_BETWEEN = "The line from the first run, at 0, to each other run, at 1; BatchNorm's statistics are interpolated too."
