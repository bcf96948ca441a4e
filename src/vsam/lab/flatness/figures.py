"""The figures of `vsam sharpness`: bars with errors, spectral densities, slices on common axes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vsam.lab.flatness.slices import Slices
from vsam.lab.flatness.texts import MEASURES, estimate_of
from vsam.lab.report.figures.drawing import Styles, add_legend, paper_look
from vsam.lab.text import shortened
from vsam.sharpness import Density, Landscape, Sharpness

__all__ = ["density_curve", "levels", "shared_range", "sharpness_figures"]

_LONGEST = 26
_NUM_LEVELS = 12


def sharpness_figures(found: Mapping[str, Sharpness], styles: Styles, slices: Slices | None) -> dict[str, Figure]:
    """All figures, by file name."""
    with paper_look():
        made = {"sharpness-bars": _bars(found, styles)}
        if any(one.density for one in found.values()):
            made["sharpness-density"] = _densities(found, styles)
        if slices is not None:
            made["landscape-lines"] = _lines(
                slices.lines, styles, "Slices through the loss", "position along a random direction"
            )
            made |= {"landscape-contours": _contours(slices.planes), "landscape-surfaces": _surfaces(slices.planes)}
            if slices.between:
                made["landscape-between"] = _lines(
                    slices.between,
                    styles,
                    f"From {next(iter(found))} to the other runs",
                    "position: 0 at the first run, 1 at the other",
                )
        return made


def _bars(found: Mapping[str, Sharpness], styles: Styles) -> Figure:
    measures = [name for name in MEASURES if any(getattr(one, name) is not None for one in found.values())]
    columns = min(3, len(measures))
    rows = -(-len(measures) // columns)
    figure = Figure(figsize=(7.2, rows * (0.9 + 0.24 * len(found))), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(measures) :]:
        axes.remove()
    for place, (axes, measure) in enumerate(zip(grid.flat, measures, strict=False)):
        _draw_bars(axes, found, measure, styles)
        axes.set_title(MEASURES[measure])
        if place % columns:
            axes.set_yticklabels([])
    figure.suptitle("Error bars: measurement error; hatched: not converged", fontsize=9)
    return figure


def _draw_bars(axes: Axes, found: Mapping[str, Sharpness], measure: str, styles: Styles) -> None:
    for place, (name, one) in enumerate(found.items()):
        estimate = estimate_of(one, measure)
        if estimate is None:
            continue
        error = estimate.error if math.isfinite(estimate.error) else 0.0
        hatch = "" if estimate.converged else "////"
        axes.barh(place, estimate.value, color=styles[name].color, height=0.7, hatch=hatch, edgecolor="white")
        axes.errorbar(estimate.value, place, xerr=error, color="#333333", capsize=2, linewidth=1)
    axes.set_yticks(range(len(found)), [shortened(name, _LONGEST) for name in found], parse_math=False)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.axvline(0, color="#666666", linewidth=0.8)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="y", visible=False)


def density_curve(density: Density, low: float, high: float, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and the density at each."""
    points = torch.linspace(low, high, 400, dtype=torch.float64)
    return points.numpy(), density.at(points, width).numpy()


def shared_range(densities: list[Density]) -> tuple[float, float, float]:
    """The range over which densities are drawn, and the width by which each eigenvalue is smoothed."""
    low = min(one.nodes.min().item() for one in densities)
    high = max(one.nodes.max().item() for one in densities)
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room, 0.01 * (high - low) or 1.0


def _densities(found: Mapping[str, Sharpness], styles: Styles) -> Figure:
    known = {name: one.density for name, one in found.items() if one.density is not None}
    where = shared_range(list(known.values()))
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for name, density in known.items():
        x, y = density_curve(density, *where)
        axes.semilogy(x, np.maximum(y, 1e-12), color=styles[name].color, linewidth=1.2)
    top = max(density_curve(one, *where)[1].max() for one in known.values())
    axes.set_ylim(1e-7 * top, 3 * top)
    axes.set_xlabel("eigenvalue")
    axes.set_ylabel("density")
    loose = [name for name, density in known.items() if not density.converged]
    note = f"; not converged: {shortened(', '.join(loose), 60)}" if loose else ""
    axes.set_title(f"Spectral density of the Hessian{note}", parse_math=False)
    add_legend(figure, list(known), styles)
    return figure


def _lines(lines: Mapping[str, Landscape], styles: Styles, title: str, axis: str) -> Figure:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for name, line in lines.items():
        axes.plot(line.axes[0].numpy(), line.losses.numpy(), color=styles[name].color, linewidth=1.4)
    axes.set_xlabel(axis)
    axes.set_ylabel("loss, nats")
    axes.set_title(title, parse_math=False)
    add_legend(figure, list(lines), styles)
    return figure


def levels(planes: Mapping[str, Landscape]) -> list[float]:
    """Losses at which contours are drawn, the same for all runs: evenly spaced logarithms."""
    losses = torch.cat([one.losses.reshape(-1) for one in planes.values()])
    finite = losses[losses.isfinite()]
    low, high = max(finite.min().item(), 1e-6), finite.max().item()
    if not high > low:
        return [low, low + 1]
    return [low * (high / low) ** (i / _NUM_LEVELS) for i in range(_NUM_LEVELS + 1)]


def _contours(planes: Mapping[str, Landscape]) -> Figure:
    figure, grid = _panels(planes, 2.5)
    at = levels(planes)
    for axes, (name, plane) in zip(grid, planes.items(), strict=True):
        x = plane.axes[0].numpy()
        losses = np.clip(plane.losses.numpy().T, at[0], at[-1])
        filled = axes.contourf(x, x, losses, levels=at, norm="log", cmap="viridis")
        axes.contour(x, x, losses, levels=at, colors="white", linewidths=0.5)
        axes.plot(0, 0, "+", color="#d55e00", markersize=8, markeredgewidth=1.6)
        axes.set_aspect("equal")
        axes.set_title(shortened(name, _LONGEST), parse_math=False)
        axes.grid(visible=False)
    bar = figure.colorbar(filled, ax=list(grid), shrink=0.8, label="loss, nats", ticks=at[::3])
    bar.ax.set_yticklabels([f"{level:.2g}" for level in at[::3]])
    bar.ax.minorticks_off()
    figure.suptitle("Two random directions, filter-normalised, the same for all runs; cross: the run", fontsize=9)
    return figure


def _surfaces(planes: Mapping[str, Landscape]) -> Figure:
    figure, grid = _panels(planes, 2.8, projection="3d")
    at = levels(planes)
    low, high = math.log10(at[0]), math.log10(at[-1])
    for axes, (name, plane) in zip(grid, planes.items(), strict=True):
        x, y = np.meshgrid(plane.axes[0].numpy(), plane.axes[0].numpy(), indexing="ij")
        z = np.log10(np.clip(plane.losses.numpy(), at[0], at[-1]))
        axes.plot_surface(x, y, z, cmap="viridis", vmin=low, vmax=high, rcount=50, ccount=50, linewidth=0)
        axes.set_zlim(low, high)
        axes.view_init(elev=32, azim=-60)
        axes.tick_params(labelsize=6, pad=-2)
        axes.set_title(shortened(name, _LONGEST), parse_math=False)
    figure.suptitle("log₁₀ of the loss on the same planes", fontsize=9)
    return figure


def _panels(planes: Mapping[str, Landscape], size: float, **options: Any) -> tuple[Figure, Any]:
    columns = min(4, len(planes))
    rows = -(-len(planes) // columns)
    figure = Figure(figsize=(0.9 + size * columns, 0.5 + size * rows), layout="constrained")
    is_flat = not options
    grid = figure.subplots(rows, columns, squeeze=False, subplot_kw=options, sharex=is_flat, sharey=is_flat)
    for axes in grid.flat[len(planes) :]:
        axes.remove()
    return figure, grid.flat[: len(planes)]
