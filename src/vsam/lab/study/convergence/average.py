"""The paper's Lemma 2 against measurement: the average squared gradient norm over T.

The lemma says (1/T) Σ E‖∇L(w_t) + γ ∇L^PSF(w_t)‖² ≤ C₁ + C₂ ln T under the learning rate η₀/t. What is wrong with it
is in docs/reproduction.md.

What is measured. SGD, SAM and vSAM on `SmoothProblem`, where L is smooth and L, gradients and PSF are bounded: under
the lemma's rate with a large and a small η₀, under η₀/√t, and under η₀/√t with ρ₀/√t. No schedule knows T, so one run
gives the averages for all T.
"""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vsam.lab.files import make_folder, write_atomically
from vsam.lab.study.convergence.descent import METHODS, SETTINGS, Schedule, averages
from vsam.lab.study.convergence.smooth import SmoothProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SCHEDULES", "Row", "convergence_figure", "reading", "run_convergence", "slope"]

Progress = Callable[[str, int, int], object]
Row = Mapping[str, Any]

SCHEDULES = (
    Schedule("lemma", "the lemma's η₀/t, η₀ = 100", 100.0, 1.0, 0.0),
    Schedule("lemma-small", "the lemma's η₀/t, η₀ = 10", 10.0, 1.0, 0.0),
    Schedule("root", "η₀/√t, η₀ = 100", 100.0, 0.5, 0.0),
    Schedule("root-radius", "η₀/√t and ρ₀/√t, η₀ = 100", 100.0, 0.5, 0.5),
)
# Images, seeds, and the horizons T.
_SCALES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "tiny": (200, 2, (4, 12, 40)),
    "small": (1000, 3, (10, 30, 100, 300, 1_000, 3_000, 10_000)),
    "paper": (4000, 5, (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 78_200)),
}
_MEANS = ("average", "gradient_average", "weighted_average", "samples")


def run_convergence(
    scale: Literal["tiny", "small", "paper"], out: Path, progress: Progress | None = None
) -> dict[str, Any]:
    """Measure every schedule × method × seed that is missing; returns the study as in its JSON file.

    A row is a method at a horizon T under a schedule: `average` is the lemma's, with γ = 0.7 for all methods, and
    `average_std` its deviation over seeds; `gradient_average` is that of ‖∇L‖²; `weighted_average` is the lemma's with
    weights η_t; `trivial_bound` holds without any step; `samples` are the second gradients up to T.

    Args:
        scale: tiny takes seconds; small some minutes; paper has as many steps as the paper's runs and takes hours.
        out: the folder of all studies; cells are files below `convergence` in it, written atomically.
        progress: called with a cell's name, the steps done in all cells, and their total.
    """
    images, seeds, horizons = _SCALES[scale]
    problem = SmoothProblem.from_images(images)
    cells = [(schedule, method, seed) for schedule in SCHEDULES for method in METHODS for seed in range(seeds)]
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for i, (schedule, method, seed) in enumerate(cells):
        name = f"{schedule.name} {method} seed {seed}"
        tell = partial(_tell, progress, name, i * horizons[-1], len(cells) * horizons[-1])
        path = out / "convergence" / scale / schedule.name / method / f"seed-{seed}.json"
        cell = _cell(path, problem, schedule, method, seed, horizons, tell)
        results.setdefault((schedule.name, method), []).append(cell)
    rows = [row for (name, method), found in results.items() for row in _rows(name, method, found)]
    return {"study": "convergence", "scale": scale, "rows": rows}


def slope(rows: Sequence[Row], schedule: str, method: str) -> float:
    """The power of T by which the lemma's average changes over the last decade: −0.5 if it falls like 1/√T."""
    found = [row for row in rows if (row["schedule"], row["method"]) == (schedule, method)]
    last = found[-1]
    first = next(row for row in found if 10 * row["horizon"] >= last["horizon"])
    return math.log(last["average"] / first["average"]) / math.log(last["horizon"] / first["horizon"])


def reading(rows: Sequence[Row]) -> list[str]:
    """The findings, one sentence per schedule. The lemma gets no verdict, because no curve could contradict it."""
    sentences = []
    for schedule in SCHEDULES:
        powers = ", ".join(f"T^{slope(rows, schedule.name, method):+.2f} for {method}" for method in METHODS)
        sentences.append(f"Under {schedule.title}, the average goes like {powers} over the last decade of T.")
    return sentences


def convergence_figure(rows: Sequence[Row]) -> "Figure":
    """The lemma's average over T, one panel per schedule, with deviations over seeds and the shape of a bound."""
    from matplotlib.figure import Figure  # takes a second to import

    figure = Figure(figsize=(9.0, 6.6), dpi=150, layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for axes, schedule in zip(panels.flat, SCHEDULES, strict=True):
        _draw(axes, schedule, [row for row in rows if row["schedule"] == schedule.name])
    for axes in panels[1]:
        axes.set_xlabel("steps T")
    for axes in panels[:, 0]:
        axes.set_ylabel("(1/T) Σ ‖∇L + γ ∇L$^{PSF}$‖²")
    first = rows[0]
    known = f"at any weights whatever it is at most {first['trivial_bound']:.0f}"
    figure.suptitle(f"The average of Lemma 2, {first['seeds']} seeds (bars: one deviation); {known}", fontsize=10)
    return figure


def _draw(axes: "Axes", schedule: Schedule, rows: Sequence[Row]) -> None:
    from vsam.lab.report.style import styles_for  # the report takes as long

    for (method, style), mark in zip(styles_for(METHODS).items(), "os^", strict=True):
        own = [row for row in rows if row["method"] == method]
        horizons, values, bars = ([row[key] for row in own] for key in ("horizon", "average", "average_std"))
        line = axes.errorbar(horizons, values, yerr=bars, fmt=f"{mark}-", color=style.color, capsize=2, linewidth=1)
        line.lines[0].set_fillstyle("none")  # so that coinciding curves all show
        line.set_label(method)
    root, words = (0.5, "like (1 + ln T)/√T") if schedule.power == 0.5 else (0.0, "like 1 + ln T, as the lemma's bound")
    shape = [(1 + math.log(horizon)) / horizon**root for horizon in horizons]
    axes.plot(horizons, [values[0] * value / shape[0] for value in shape], "k--", linewidth=1, label=words)
    axes.set(xscale="log", yscale="log")
    axes.set_title(schedule.title, fontsize=10)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


def _tell(progress: Progress | None, name: str, before: int, total: int, step: int) -> None:
    if progress is not None:
        progress(name, before + step, total)


def _cell(
    path: Path,
    problem: SmoothProblem,
    schedule: Schedule,
    method: str,
    seed: int,
    horizons: Sequence[int],
    tell: Callable[[int], None],
) -> dict[str, Any]:
    """The cell from its file; measured and written if there is none with these settings."""
    settings = {**asdict(schedule), **SETTINGS, "method": method, "seed": seed, "horizons": list(horizons)}
    try:
        cell: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        cell = {}
    if cell.get("settings") != settings:
        make_folder(path.parent)
        cell = {"settings": settings, "points": averages(problem, schedule, method, seed, horizons, tell)}
        write_atomically(path, json.dumps(cell, indent=1) + "\n")
    tell(horizons[-1])
    return cell


def _rows(schedule: str, method: str, cells: Sequence[Row]) -> list[dict[str, Any]]:
    """The means over seeds, one row per horizon."""
    rows = []
    for points in zip(*(cell["points"] for cell in cells), strict=True):
        each = [point["average"] for point in points]
        settings = {"method": method, "schedule": schedule, "horizon": points[0]["horizon"], "seeds": len(points)}
        means = {name: statistics.fmean(point[name] for point in points) for name in _MEANS}
        seeds = {"seed_list": [cell["settings"]["seed"] for cell in cells], "averages": each}
        spread = {"average_std": statistics.stdev(each), "trivial_bound": SmoothProblem.GRADIENT_BOUND**2}
        rows.append({**settings, **means, **spread, **seeds})
    return rows
