"""Running a study: its parts one after the other, kept cells skipped, failures listed at the end."""

import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from vsam.lab.comparison.compare import (
    FinishedRun,
    NullProgress,
    Progress,
    Row,
    compare,
    count_steps,
    read_finished,
    run_path,
    sentence,
    steps_done,
    summarise,
    without_damaged,
)
from vsam.lab.comparison.speed import seed_speed
from vsam.lab.errors import DamagedError, RunError
from vsam.lab.paper.numbers import Published, references
from vsam.lab.recipes.recipe import Recipe, check_recipe
from vsam.lab.runs.checkpoint import load_checkpoint
from vsam.lab.runs.folder import read_settings, read_summary
from vsam.lab.runs.train import load_data
from vsam.lab.study.norms import norms_of
from vsam.lab.study.plan import Part, Scale, Study

__all__ = ["Outcome", "PartOutcome", "Train", "run_study"]

Train = Callable[[Sequence[Recipe], Path, Path | None, torch.device, Progress], list[str]]


@dataclass(frozen=True)
class PartOutcome:
    """The rows of one part, and the runs that they come from."""

    name: str
    rows: list[Row]
    cells: list[FinishedRun]

    @property
    def published(self) -> dict[str, Published]:
        """The paper's numbers by label, for runs whose setting is the paper's."""
        return references({cell.label: check_recipe(cell.label, _config(cell)) for cell in self.cells})


@dataclass(frozen=True)
class Outcome:
    """What came out of a study.

    Args:
        study: which.
        scale: at which it was run.
        parts: in the order of the plan; those without a finished run are left out.
        failures: a sentence for each run that is not finished.
    """

    study: Study
    scale: Scale
    parts: list[PartOutcome]
    failures: list[str] = field(default_factory=list)

    def table(self, part: PartOutcome) -> list[Row]:
        """A part's rows as a table shows them: each of vSAM's called by what was varied."""
        varied = self.study.varied
        if varied is None:
            return part.rows
        values = {cell.label: _config(cell)["vsam"][varied] for cell in part.cells if cell.method == "vsam"}
        return [replace(row, label=_named(row, varied, values)) for row in part.rows]

    def to_dict(self) -> dict[str, Any]:
        """The study as programs read it: the rows of a comparison, what was varied, and the numbers of each seed."""
        rows = [_record(self.study, part, row) for part in self.parts for row in part.rows]
        summaries = [cell.summary for part in self.parts for cell in part.cells]
        environments = {json.dumps(s["environment"], sort_keys=True) for s in summaries if "environment" in s}
        return {
            "study": self.study.name,
            "scale": self.scale,
            "rows": rows,
            "failures": self.failures,
            "training_seconds": sum(summary["seconds"] for summary in summaries),
            "environments": [json.loads(text) for text in sorted(environments)],
        }


def run_study(
    study: Study,
    scale: Scale,
    seeds: int,
    out: Path,
    data_dir: Path | None,
    device: torch.device,
    progress: Progress | None = None,
    *,
    only: Sequence[str] = (),
    train: Train | None = None,
) -> Outcome:
    """Train what is missing of a study, below `out/runs`, and gather its rows.

    Args:
        study: one of `STUDIES`.
        scale: tiny, small or paper.
        seeds: how many, at least 1.
        out: the folder of all studies; runs that several of them need are trained once.
        data_dir: where the data sets lie.
        device: where to train.
        progress: who shows how far it is.
        only: names of the parts to train; all of them if empty. Rows come from all that are there.
        train: trains recipes and returns the failures; in turns in this process if left out.
    """
    shown = progress or NullProgress()
    runs = out / "runs"
    parts = study.plan(scale, seeds, runs)
    wanted, failures = _check([part for part in parts if not only or part.name in only], runs)
    shown.begin([cell for part in wanted for cell in _cells(part, runs, data_dir)])
    for part in wanted:
        ready, waiting = _sorted_out(part, runs)
        part_failures = (train or _in_turns)(ready, runs, data_dir, device, _Named(part.name, shown)) if ready else []
        failures += [f"{part.name}: {failure}" for failure in [*part_failures, *waiting]]
    return Outcome(study, scale, [found for part in parts if (found := _gather(part, runs))], failures)


def _check(parts: Sequence[Part], runs: Path) -> tuple[list[Part], list[str]]:
    """The parts without their damaged runs, and a sentence for each of these; other settings are refused."""
    sound: list[Part] = []
    failures: list[str] = []
    for part in parts:
        recipes, damaged = without_damaged(part.recipes, runs)
        sound += [replace(part, recipes=tuple(recipes))] if recipes else []
        failures += [f"{part.name}: {failure}" for failure in damaged]
    return sound, failures


def _sorted_out(part: Part, runs: Path) -> tuple[list[Recipe], list[str]]:
    """The recipes that can be trained, and a sentence for each that would start from a run that cannot be used."""
    ready, waiting = [], []
    for recipe in part.recipes:
        checkpoint = recipe.quantize.checkpoint if recipe.quantize else "none"
        is_done = read_summary(run_path(runs, recipe)) is not None
        obstacle = None if is_done or checkpoint == "none" else _obstacle(Path(checkpoint))
        if obstacle is None:
            ready.append(recipe)
        else:
            waiting.append(sentence(recipe, f"not run, because {obstacle}"))
    return ready, waiting


def _obstacle(checkpoint: Path) -> str | None:
    """Why no run can start from the checkpoint of another, if so."""
    source = checkpoint.parent
    advice = f"Delete {source} so that it is trained again."
    if read_summary(source) is None:
        return f"{source} has not been trained to its end."
    if not checkpoint.exists():
        return f"{source} has no checkpoint.pt. {advice}"
    try:
        read_settings(source)
        load_checkpoint(checkpoint, advice=advice)
    except (DamagedError, RunError) as error:
        return str(error)
    return None


def _is_finished(path: Path) -> bool:
    """Whether a run has ended and its settings are known."""
    try:
        return read_summary(path) is not None and read_settings(path) is not None
    except DamagedError:
        return False


def _in_turns(
    recipes: Sequence[Recipe], runs: Path, data_dir: Path | None, device: torch.device, progress: Progress
) -> list[str]:
    return compare(recipes, runs, data_dir, device, progress)[1]


def _cells(part: Part, runs: Path, data_dir: Path | None) -> list[tuple[str, int, int, int]]:
    """What the progress begins with. Loading the data here finds missing ones before anything is trained."""
    summaries = [read_summary(run_path(runs, recipe)) for recipe in part.recipes]
    if summaries[0] and all(summaries):
        total = int(summaries[0]["steps"])
    else:
        total = count_steps(part.recipes[0], load_data(part.recipes[0], data_dir, torch.device("cpu")))
    return [(f"{part.name} {r.label}", r.seed, steps_done(run_path(runs, r), total), total) for r in part.recipes]


def _gather(part: Part, runs: Path) -> PartOutcome | None:
    paths = [run_path(runs, recipe) for recipe in part.recipes]
    cells = [read_finished(path) for path in paths if _is_finished(path)]
    return PartOutcome(part.name, summarise(cells), cells) if cells else None


def _record(study: Study, part: PartOutcome, row: Row) -> dict[str, Any]:
    cells = [cell for cell in part.cells if cell.label == row.label]
    record: dict[str, Any] = row.to_dict()
    if study.varied is not None:
        record[study.varied] = _config(cells[0])["vsam"][study.varied] if row.method == "vsam" else None
    record |= {
        "recipe": part.name,
        "noise": _config(cells[0])["data"]["noise"],
        "label": row.label,
        "speed_quartiles": row.quartiles,
        "seed_list": [cell.seed for cell in cells],
        "accuracies": [cell.summary["accuracy"] for cell in cells],
        "samples_each": [cell.summary["samples"] for cell in cells],
        "speed_to_sam_each": _speeds(cells, [cell for cell in part.cells if cell.label == "sam"]),
    }
    return record | norms_of(cells) if study.name == "norms" else record


def _named(row: Row, varied: str, values: dict[str, float]) -> str:
    return f"vsam {varied}={values[row.label]:g}" if row.label in values else row.label


def _speeds(cells: Sequence[FinishedRun], references: Sequence[FinishedRun]) -> list[float | None]:
    """Each run's speed against SAM's of the same seed, where the two took turns."""
    by_seed = {cell.seed: cell for cell in references}
    return [seed_speed(cell, by_seed[cell.seed]) if cell.seed in by_seed else None for cell in cells]


def _config(cell: FinishedRun) -> dict[str, Any]:
    return tomllib.loads((cell.path / "config.toml").read_text(encoding="utf-8"))


class _Named:
    """Tells a study's progress of one part's runs."""

    def __init__(self, part: str, shown: Progress) -> None:
        self._part, self._shown = part, shown

    def begin(self, cells: Sequence[tuple[str, int, int, int]]) -> None:
        """Nothing: the study has begun already."""

    def advance(self, method: str, seed: int, step: int) -> None:
        """A run has reached a step."""
        self._shown.advance(f"{self._part} {method}", seed, step)

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """A run has ended an epoch."""
        self._shown.epoch(f"{self._part} {method}", seed, metrics)
