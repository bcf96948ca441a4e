"""The study of flatness: what is measured once its runs are trained, and its columns, findings and tables."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vsam.lab.comparison.progress import Progress
from vsam.lab.errors import RunError, UserError
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.finished import FinishedRun
from vsam.lab.study.flatness.minima import MEASURES, measure_minimum, read_minimum
from vsam.lab.study.flatness.psf import follow, read_psf
from vsam.lab.study.flatness.statistics import correlations, ratios_to_sgd
from vsam.lab.study.study import Scale, Table

__all__ = ["METHODS", "findings", "flatness_of", "measure_flatness", "tables"]

METHODS = ("sgd", "sam", "vsam", "vsam-budget")
FOLLOWED = "vsam"
"""The method along whose first run PSF is followed."""
_TASK = "measuring"
SHOWN_AGES = (1, 2, 5, 10, 20, 50)
_ON_SMALL = "measured on training images as they are stored, BatchNorm as in evaluation"
Row = Mapping[str, Any]


def measure_flatness(
    runs: Sequence[FinishedRun], scale: Scale, data_dir: Path | None, device: torch.device, progress: Progress
) -> list[str]:
    """Measure the minimum of every run, and follow PSF along a copy of vSAM's first run of each recipe."""
    failures = []
    tasks = [partial(_minimum, run, scale, data_dir, device) for run in runs]
    tasks += [partial(_psf, run, scale, data_dir, device) for run in runs if run.label == FOLLOWED and run.seed == 0]
    progress.begin([(_TASK, 0, 0, len(tasks))])
    for done, task in enumerate(tasks, 1):
        try:
            task()
        except (RunError, UserError) as error:
            failures.append(str(error))
        progress.advance(_TASK, 0, done)
    return failures


def _minimum(run: FinishedRun, scale: Scale, data_dir: Path | None, device: torch.device) -> None:
    measure_minimum(run.path, _recipe(run), scale, data_dir, str(device))


def _psf(run: FinishedRun, scale: Scale, data_dir: Path | None, device: torch.device) -> None:
    follow(run.path, _recipe(run), scale, data_dir, device)


def _recipe(run: FinishedRun) -> Recipe:
    if run.recipe is None:
        raise UserError(f"{run.path} has settings that this version does not know. It was not measured.")
    return run.recipe


def flatness_of(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """What was measured of each run's minimum, None if nothing was, and PSF along the first run that was followed."""
    minima = [read_minimum(run.path) for run in runs]
    return {"minima": minima, "psf": next((seen for run in runs if (seen := read_psf(run.path))), None)}


def findings(rows: Sequence[Row]) -> dict[str, Any]:
    """Ratios to SGD and rank correlations with accuracy, by recipe and measure."""
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    by_recipe = {recipe: [row for row in rows if row["recipe"] == recipe] for recipe in recipes}
    return {
        "ratios_to_sgd": {recipe: ratios_to_sgd(own, list(MEASURES)) for recipe, own in by_recipe.items()},
        "correlations": {recipe: correlations(own, list(MEASURES)) for recipe, own in by_recipe.items()},
    }


def tables(rows: Sequence[Row]) -> list[Table]:
    """The measures, their ratios to SGD's, their correlation with accuracy, and PSF along a run."""
    found = findings(rows)
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    made = [_measures(recipe, [row for row in rows if row["recipe"] == recipe]) for recipe in recipes]
    made += [_ratios(recipe, found["ratios_to_sgd"][recipe]) for recipe in recipes]
    made.append(_correlations(recipes, found["correlations"]))
    followed = [row for row in rows if row["psf"]]
    return [*made, *([_reuse(followed), _first_order(followed)] if followed else [])]


def _measures(recipe: str, rows: Sequence[Row]) -> Table:
    lines = [["measure", *(row["label"] for row in rows)]]
    lines += [[title, *(_mean(row, name) for row in rows)] for name, title in MEASURES.items()]
    lines.append(["training loss", *(_numbers([m["loss"] for m in row["minima"] if m]) for row in rows)])
    known = next((m for row in rows for m in row["minima"] if m), None)
    if known is None:
        return Table(f"{recipe}: measures", lines, "Not measured yet.")
    settings = known["settings"]
    note = (
        f"Mean over seeds ± standard deviation; {settings['samples']:,} images, m = {settings['batch']}, rho = "
        f"{settings['rho']:g}, adaptive {settings['adaptive_rho']:g}; {_ON_SMALL}. * not all converged."
    )
    return Table(f"{recipe}: measures", lines, note)


def _mean(row: Row, measure: str) -> str:
    known = [minimum["measures"][measure] for minimum in row["minima"] if minimum]
    return _numbers([one["value"] for one in known]) + ("" if all(one["converged"] for one in known) else "*")


def _numbers(values: Sequence[float]) -> str:
    if not values:
        return "–"
    tensor = torch.tensor(values, dtype=torch.float64)
    return f"{tensor.mean():.3g} ± {tensor.std():.2g}" if len(values) > 1 else f"{values[0]:.3g}"


def _ratios(recipe: str, ratios: Mapping[str, Mapping[str, Any]]) -> Table:
    labels = list(dict.fromkeys(label for own in ratios.values() for label in own))
    lines = [["measure", *(f"{label} / sgd" for label in labels)]]
    for name, title in MEASURES.items():
        lines.append([title, *(_ratio(ratios[name].get(label)) for label in labels)])
    note = (
        "Geometric mean of the ratios within seeds, with its 95 % interval (Student's t on logarithms). flatter: the "
        "interval is below 1; sharper: above. Numbers that are not above twice their own error are left out."
    )
    return Table(f"{recipe}: against SGD", lines, note)


def _ratio(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    if found["low"] is None:
        return f"{found['ratio']:.2f}"
    verdict = {"flatter": " flatter", "sharper": " sharper"}.get(found["verdict"], "")
    return f"{found['ratio']:.2f} ({found['low']:.2f}–{found['high']:.2f}){verdict}"


def _correlations(recipes: Sequence[str], found: Mapping[str, Mapping[str, Any]]) -> Table:
    lines = [["measure", *recipes]]
    for name, title in MEASURES.items():
        lines.append([title, *(_correlation(found[recipe].get(name)) for recipe in recipes)])
    note = (
        "Spearman's rank correlation over all runs of a setting, with its 95 % interval (Fisher's z, Bonett and "
        "Wright's error), and in brackets the one within methods (each method's mean subtracted). Negative: flatter "
        "runs are more accurate. The intervals treat runs as independent, but runs of a method are alike: they are too "
        "narrow."
    )
    return Table("Rank correlation of sharpness with test accuracy", lines, note)


def _correlation(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "–"
    within = "" if found["within"] is None else f" [{found['within']:+.2f}]"
    return f"{found['value']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f}){within}"


def _reuse(rows: Sequence[Row]) -> Table:
    known = {one["age"] for row in rows for window in row["psf"]["windows"] for one in window["ages"]}
    ages = [age for age in SHOWN_AGES if age in known]
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
    return Table("How well an old PSF predicts the fresh one", lines, note)


def _first_order(rows: Sequence[Row]) -> Table:
    lines = [["recipe", "relative error, median", "lowest", "highest", "cosine, median", "lowest"]]
    for row in rows:
        errors = torch.tensor([one["error"] for one in row["psf"]["hessian"]], dtype=torch.float64)
        cosines = torch.tensor([one["cosine"] for one in row["psf"]["hessian"]], dtype=torch.float64)
        numbers = (errors.median(), errors.min(), errors.max(), cosines.median(), cosines.min())
        lines.append([row["recipe"], *(f"{number:.2f}" for number in numbers)])
    note = (
        f"‖PSF − ρ·H·g/‖g‖‖ / ‖PSF‖ and their cosine at up to {len(rows[0]['psf']['hessian'])} steps of the same run."
    )
    return Table("PSF against ρ·H·g/‖g‖", lines, note)
