"""Measure the sharpness of minima by every measure, its correlation with accuracy, and PSF along a run.

python -m research.flatness --scale small

Trains SGD, SAM, vSAM and vSAM (budget 0.2), measures the minimum of every run, and follows PSF along a copy of vSAM's
first run. The measurements are kept beside each run: rerun the command to resume.
"""

import argparse
import hashlib
import json
import math
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from research.psf import follow
from vsam.lab.environment import choose_device
from vsam.lab.errors import UserError
from vsam.lab.files import write_atomically
from vsam.lab.jsonl import read_object
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.report.tables import markdown_table
from vsam.lab.run import run_path
from vsam.lab.sharpness import open_trained
from vsam.lab.statistics import difference
from vsam.lab.study import run as studies
from vsam.sharpness import Sharpness

__all__ = ["MEASURES", "correlations", "figures", "measure_minimum", "notes", "ratios_to_sgd", "spearman"]

TITLE = "How sharp the minima are by every measure, whether that goes with accuracy, and PSF along a run"
METHODS = ("sgd", "sam", "vsam", "vsam-budget")
FOLLOWED = "vsam"  # the method along whose first run PSF is followed
RECIPES = {"tiny": ("fashion-mini",), "small": ("cifar10-small", "cifar10-small-noisy", "cifar100-small")}
FILE = "flatness.json"
ADAPTIVE_RHO = 0.5
MEASURES = {
    "top_eigenvalue": "top eigenvalue",
    "trace": "trace",
    "batch_ascent": "SAM's sharpness",
    "ascent": "ascent, all images",
    "worst": "worst in the ball",
    "random": "random directions",
    "adaptive_top_eigenvalue": "adaptive top eigenvalue",
    "adaptive_batch_ascent": "adaptive SAM's sharpness",
    "adaptive_worst": "adaptive worst",
    "adaptive_random": "adaptive random",
}
DRAWN = ("top_eigenvalue", "batch_ascent", "worst")
AGES = (1, 2, 5, 10, 20, 50)
_SIZES = {"tiny": (32, 3, 2), "small": (512, 30, 8)}  # images, Lanczos iterations, probes
_FEWEST = 5  # runs that a correlation needs: with fewer, its interval says nothing
Row = Mapping[str, Any]


def measure_minimum(run: Path, recipe: Recipe, scale: str) -> dict[str, Any]:
    """Measure a run's final weights, or read earlier measurements with the same settings."""
    samples, iterations, probes = _SIZES[scale]
    shared: dict[str, Any] = {"max_iterations": iterations, "num_probes": probes, "num_directions": max(2, probes // 2)}
    settings = {"samples": samples, "batch": recipe.batch, "rho": recipe.rho, "adaptive_rho": ADAPTIVE_RHO, **shared}
    checkpoint = run / "checkpoint.pt"
    before, proof = read_object(run / FILE), hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    if (before.get("settings"), before.get("checkpoint")) == (settings, proof):
        return before
    opened = open_trained(checkpoint, samples, recipe.batch, None, None)
    plain = opened.measure(rho=recipe.rho, **shared).found
    what = ("top_eigenvalues", "ascent", "worst", "random")
    adaptive = opened.measure(rho=ADAPTIVE_RHO, adaptive=True, what=what, **shared).found
    measures = _estimates(plain) | {f"adaptive_{name}": one for name, one in _estimates(adaptive).items()}
    found = {"settings": settings, "checkpoint": proof, "loss": plain.loss, "measures": measures}
    write_atomically(run / FILE, json.dumps(found, indent=1) + "\n")
    return found


def _estimates(found: Sharpness) -> dict[str, dict[str, Any]]:
    assert found.top_eigenvalues is not None
    estimates = {name: getattr(found, name) for name in ("trace", "batch_ascent", "ascent", "worst", "random")}
    estimates["top_eigenvalue"] = found.top_eigenvalues[0]
    return {
        name: {"value": one.value, "error": one.error if math.isfinite(one.error) else None, "converged": one.converged}
        for name, one in estimates.items()
        if one is not None
    }


def ratios_to_sgd(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return for each measure and label the ratio to SGD's within seeds, its 95 % interval, and the verdict."""
    reference = next((row for row in rows if row["label"] == "sgd"), None)
    found: dict[str, dict[str, Any]] = {measure: {} for measure in MEASURES}
    for measure in MEASURES if reference else ():
        theirs = _logarithms(reference, measure)
        for row in rows:
            ours = _logarithms(row, measure)
            shared = sorted(ours.keys() & theirs.keys())
            if row["label"] == "sgd" or not shared:
                continue
            ratio = math.exp(statistics.fmean(ours[seed] - theirs[seed] for seed in shared))
            interval = difference({s: ours[s] for s in shared}, {s: theirs[s] for s in shared})
            low, high = (math.exp(interval.low), math.exp(interval.high)) if interval else (0.0, math.inf)
            verdict = "flatter" if high < 1 else "sharper" if low > 1 else "open"
            found[measure][row["label"]] = {"ratio": ratio, "low": low, "high": high, "verdict": verdict}
    return found


def _logarithms(row: Row | None, measure: str) -> dict[int, float]:
    """Return by seed those that are above twice their own error."""
    pairs = zip(row["seed_list"], row["minima"], strict=True) if row else ()
    found = {seed: minimum["measures"][measure] for seed, minimum in pairs if minimum}
    return {s: math.log(one["value"]) for s, one in found.items() if one["value"] > 2 * (one["error"] or 0.0)}


def correlations(rows: Sequence[Row]) -> dict[str, dict[str, Any] | None]:
    """Return each measure's rank correlation with test accuracy over the runs of a recipe, None with too few."""
    return {measure: _correlation(rows, measure) for measure in MEASURES}


def _correlation(rows: Sequence[Row], measure: str) -> dict[str, Any] | None:
    runs = [
        (place, minimum["measures"][measure]["value"], accuracy)
        for place, row in enumerate(rows)
        for minimum, accuracy in zip(row["minima"], row["accuracies"], strict=True)
        if minimum and math.isfinite(minimum["measures"][measure]["value"])
    ]
    if len(runs) < _FEWEST:
        return None
    places, values, accuracies = (np.array(column) for column in zip(*runs, strict=True))
    value, low, high = spearman(values, accuracies)
    return {"value": value, "low": low, "high": high, "within": _within(places, values, accuracies)}


def spearman(one: Any, other: Any) -> tuple[float, float, float]:
    """Return the rank correlation and its 95 % interval, by Fisher's z with Bonett and Wright's error (2000)."""
    value = _pearson(stats.rankdata(one), stats.rankdata(other))
    if not abs(value) < 1:
        return value, value, value
    reach = stats.norm.ppf(0.975) * math.sqrt((1 + value**2 / 2) / (len(one) - 3))
    middle = math.atanh(value)
    return value, math.tanh(middle - reach), math.tanh(middle + reach)


def _within(places: Any, values: Any, accuracies: Any) -> float | None:
    """Return the rank correlation with each method's mean rank subtracted, None if methods have one run each."""
    ranks = [stats.rankdata(values), stats.rankdata(accuracies)]
    methods = set(places.tolist())
    if all((places == place).sum() < 2 for place in methods):
        return None
    for column in ranks:
        for place in methods:
            column[places == place] -= column[places == place].mean()
    return _pearson(*ranks) if all(column.any() for column in ranks) else None


def _pearson(one: Any, other: Any) -> float:
    if one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1, 1))


def notes(content: Row) -> str:
    """Return the tables of measures, ratios, correlations and PSF."""
    by_recipe = _by_recipe(content)
    found = {recipe: correlations(rows) for recipe, rows in by_recipe.items()}
    lines = [["measure", *by_recipe]]
    for name, title in MEASURES.items():
        lines.append([title, *(_correlation_text(found[recipe][name]) for recipe in by_recipe)])
    between = (
        "Spearman's rank correlation over all runs of a setting, with its 95 % interval (Fisher's z, Bonett and "
        "Wright's error), and in brackets the one within methods (each method's mean subtracted). Negative: flatter "
        "runs are more accurate. The intervals treat runs as independent, but runs of a method are alike: they are too "
        "narrow."
    )
    sections = [_measures(recipe, rows) for recipe, rows in by_recipe.items()]
    sections += [_ratios(recipe, rows) for recipe, rows in by_recipe.items()]
    sections.append(_section("Rank correlation of sharpness with test accuracy", lines, between))
    followed = [row for row in content["rows"] if row.get("psf")]
    return "\n".join([*sections, *([_reuse(followed), _first_order(followed)] if followed else [])])


def _section(title: str, lines: Sequence[Sequence[str]], note: str) -> str:
    return f"## {title}\n\n{markdown_table(lines)}\n{note}\n"


def _measures(recipe: str, rows: Sequence[Row]) -> str:
    lines = [["measure", *(row["label"] for row in rows)]]
    for name, title in MEASURES.items():
        lines.append([title, *(_numbers([m["measures"][name] for m in row["minima"] if m]) for row in rows)])
    losses = ([{"value": m["loss"], "converged": True} for m in row["minima"] if m] for row in rows)
    lines.append(["training loss", *map(_numbers, losses)])
    settings = next(m["settings"] for row in rows for m in row["minima"] if m)
    note = (
        f"Mean over seeds ± standard deviation; {settings['samples']:,} images, m = {settings['batch']}, rho = "
        f"{settings['rho']:g}, adaptive {settings['adaptive_rho']:g}; measured on training images as they are stored, "
        "BatchNorm as in evaluation. * not all converged."
    )
    return _section(f"{recipe}: measures", lines, note)


def _numbers(found: Sequence[Row]) -> str:
    values = torch.tensor([one["value"] for one in found], dtype=torch.float64)
    if not found:
        return "–"
    spread = f" ± {values.std():.2g}" if len(values) > 1 else ""
    return f"{values.mean():.3g}{spread}" + ("" if all(one["converged"] for one in found) else "*")


def _ratios(recipe: str, rows: Sequence[Row]) -> str:
    ratios = ratios_to_sgd(rows)
    labels = list(dict.fromkeys(label for own in ratios.values() for label in own))
    lines = [["measure", *(f"{label} / sgd" for label in labels)]]
    for name, title in MEASURES.items():
        lines.append([title, *(_ratio_text(ratios[name].get(label)) for label in labels)])
    note = (
        "Geometric mean of the ratios within seeds, with its 95 % interval (Student's t on logarithms). flatter: the "
        "interval is below 1; sharper: above. Numbers that are not above twice their own error are left out."
    )
    return _section(f"{recipe}: against SGD", lines, note)


def _ratio_text(found: Row | None) -> str:
    if found is None:
        return "–"
    if math.isinf(found["high"]):
        return f"{found['ratio']:.2f}"
    verdict = "" if found["verdict"] == "open" else f" {found['verdict']}"
    return f"{found['ratio']:.2f} ({found['low']:.2f}–{found['high']:.2f}){verdict}"


def _correlation_text(found: Row | None) -> str:
    if found is None:
        return "–"
    within = "" if found["within"] is None else f" [{found['within']:+.2f}]"
    return f"{found['value']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f}){within}"


def _reuse(rows: Sequence[Row]) -> str:
    known = {one["age"] for row in rows for window in row["psf"]["windows"] for one in window["ages"]}
    ages = [age for age in AGES if age in known]
    lines = [["recipe, step", *(f"age {age}" for age in ages)]]
    for row in rows:
        for window in row["psf"]["windows"]:
            by_age = {one["age"]: one for one in window["ages"]}
            cells = [f"{by_age[age]['cosine']:.2f}" if age in by_age else "–" for age in ages]
            lines.append([f"{row['recipe']}, step {window['step']:,}", *cells])
    note = (
        "Cosine of the PSF of a step with the fresh PSF of a later step, each on its own mini-batch: mean over the "
        f"first steps of a window, along {FOLLOWED}'s run of seed 0."
    )
    return _section("How well an old PSF predicts the fresh one", lines, note)


def _first_order(rows: Sequence[Row]) -> str:
    lines = [["recipe", "relative error, median", "lowest", "highest", "cosine, median", "lowest"]]
    for row in rows:
        errors, cosines = ([one[key] for one in row["psf"]["hessian"]] for key in ("error", "cosine"))
        middles = (statistics.median_low(errors), min(errors), max(errors), statistics.median_low(cosines))
        lines.append([row["recipe"], *(f"{number:.2f}" for number in (*middles, min(cosines)))])
    count = len(rows[0]["psf"]["hessian"])
    note = f"‖PSF − ρ·H·g/‖g‖‖ / ‖PSF‖ and their cosine at up to {count} steps of the same run."
    return _section("PSF against ρ·H·g/‖g‖", lines, note)


def figures(content: Row) -> dict[str, Any]:
    """Return per recipe the ratios to SGD, accuracy against sharpness, and PSF along a run."""
    from vsam.lab.report.figures import Curve, Point, bars, curves, points, styles_for

    found: dict[str, Any] = {}
    for recipe, rows in _by_recipe(content).items():
        styles = styles_for(row["label"] for row in rows)
        ratios, shown = ratios_to_sgd(rows), {}
        for measure in DRAWN:
            for label, one in ratios[measure].items():
                reach = (one["high"] - one["low"]) / 2
                shown[f"{label}: {MEASURES[measure]}"] = (one["ratio"], reach, one["verdict"] != "open")
        if shown:
            own = {name: styles[name.partition(":")[0]] for name in shown}
            found[f"flatness-{recipe}-ratios"] = bars(shown, own, x="against SGD’s (SGD = 1)")
        for measure in ("top_eigenvalue", "worst"):
            dots = []
            for row in rows:
                values = [m["measures"][measure]["value"] for m in row["minima"] if m]
                x_error = statistics.stdev(values) if len(values) > 1 else 0.0
                x = statistics.fmean(values)
                dots.append(Point(row["label"], x, row["accuracy"], x_error=x_error, y_error=row["accuracy_std"]))
            found[f"flatness-{recipe}-{measure}"] = points(dots, styles, x=MEASURES[measure], y="test accuracy, %")
        for row in (row for row in rows if row.get("psf")):
            lines = []
            for window in (window for window in row["psf"]["windows"] if window["ages"]):
                x = [one["age"] for one in window["ages"]]
                lines.append(Curve(f"step {window['step']:,}", x, [one["cosine"] for one in window["ages"]]))
            if lines:
                own = styles_for(line.label for line in lines)
                axes = {"x": "age, steps", "y": "cosine with the fresh PSF"}
                found[f"flatness-{recipe}-psf"] = curves(lines, own, **axes)
            x = [one["step"] for one in row["psf"]["hessian"]]
            names = {"cosine": "cosine", "error": "relative error"}
            lines = [Curve(name, x, [one[key] for one in row["psf"]["hessian"]]) for key, name in names.items()]
            drawn = curves(lines, styles_for(names.values()), x="step", y="PSF against ρ·H·g/‖g‖")
            found[f"flatness-{recipe}-first-order"] = drawn
    return found


def _by_recipe(content: Row) -> dict[str, list[Row]]:
    recipes = dict.fromkeys(row["recipe"] for row in content["rows"])
    return {recipe: [row for row in content["rows"] if row["recipe"] == recipe] for recipe in recipes}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and measure what is missing, and write numbers, tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=tuple(RECIPES), default="small")
    parser.add_argument("--out", type=Path, help="default: studies/SCALE")
    parser.add_argument("--seeds", type=int)
    given = parser.parse_args(arguments)
    out, seeds = given.out or Path("studies") / given.scale, given.seeds or (3 if given.scale == "small" else 1)
    recipes = [load_recipe(name, tiny=given.scale == "tiny") for name in RECIPES[given.scale]]
    parts = {
        one.name: [one.updated(seed=one.seed + i, method=name) for i in range(seeds) for name in METHODS]
        for one in recipes
    }
    device = choose_device()
    content = studies.run_study("flatness", given.scale, parts, parts, out, None, device)
    if content["failures"]:
        raise UserError("These runs are not finished: " + "; ".join(content["failures"]))
    for row in content["rows"]:
        own = [one for one in parts[row["recipe"]] if one.label == row["label"]]
        paths = {one.seed: run_path(out / "runs", one) for one in own}
        row["minima"] = [measure_minimum(paths[one.seed], one, given.scale) for one in own]
        first = own[0]
        is_followed = row["label"] == FOLLOWED
        row["psf"] = follow(paths[first.seed], first, given.scale, device) if is_followed else None
    content["command"] = shlex.join(
        ["python", "-m", "research.flatness", *(sys.argv[1:] if arguments is None else arguments)]
    )
    page = studies.page(content, TITLE, notes(content))
    for path in studies.write_files(content, out, page, figures(content)):
        print(path)


if __name__ == "__main__":
    main()
