"""Running a study: one part after another, finished runs skipped, failures listed at the end."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vsam.lab.comparison.compare import Train, compare, count_steps
from vsam.lab.comparison.progress import NullProgress, Progress
from vsam.lab.comparison.rows import summarise
from vsam.lab.errors import RunError, UserError
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.checkpoint import load_checkpoint
from vsam.lab.runs.facts import SOURCE
from vsam.lab.runs.finished import read_run
from vsam.lab.runs.store import RunStore, sentence
from vsam.lab.runs.tensorboard import Observe
from vsam.lab.runs.train import load_data
from vsam.lab.study.outcome import PartOutcome, TrainedOutcome
from vsam.lab.study.study import Part, Scale, Study

__all__ = ["chosen_parts", "run_study"]


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
    methods: Sequence[str] = (),
    train: Train | None = None,
    observe: Observe = lambda run: None,
) -> TrainedOutcome:
    """Train what is missing of a study, below `out/runs`, and collect its rows.

    Args:
        study: one of `STUDIES`.
        scale: tiny, small or paper.
        seeds: number of seeds, at least 1.
        out: the folder of all studies; runs that several of them need are trained once.
        data_dir: dataset directory.
        device: to train on.
        progress: shows the progress.
        only: names of the parts to train; all if empty. Rows come from all finished runs.
        methods: names of the methods to train; all if empty. Likewise; the source of quantized runs is always trained.
        train: trains recipes and returns the failures; if left out, they alternate in this process.
        observe: called with every run before it trains.
    """
    shown = progress or NullProgress()
    store = RunStore(out / "runs")
    parts = study.plan(scale, seeds, store.out)
    wanted, failures = _check(chosen_parts(parts, only, methods), store)
    shown.begin([row for part in wanted for row in _planned(part, store, data_dir)])
    for part in wanted:
        ready, waiting = _sorted_out(part, store)
        named = _Named(part.name, shown)
        stopped = compare(ready, store, data_dir, device, named, observe, train)[1] if ready else []
        failures += [f"{part.name}: {failure}" for failure in [*stopped, *waiting]]
        store.refresh(part.recipes)
    found = {part.name: store.finished(part.recipes) for part in parts}
    if study.after is not None:
        failures += study.after([run for runs in found.values() for run in runs], scale, data_dir, device, shown)
    gathered = [PartOutcome(name, summarise(runs), runs) for name, runs in found.items() if runs]
    return TrainedOutcome(study, scale, gathered, failures, store.damaged)


def chosen_parts(parts: Sequence[Part], only: Sequence[str], methods: Sequence[str]) -> list[Part]:
    """What `--only` and `--methods` leave of a plan, which must contain what they name."""
    for kind, names, known in (
        ("part", only, [part.name for part in parts]),
        ("method", methods, [recipe.method for part in parts for recipe in part.recipes]),
    ):
        if unknown := [name for name in names if name not in known]:
            have = ", ".join(dict.fromkeys(known))
            raise UserError(f"The study has no {kind} {unknown[0]!r} at this scale. It has: {have}.")
    chosen = [
        replace(part, recipes=tuple(r for r in part.recipes if not methods or r.method in methods or r.role == SOURCE))
        for part in parts
        if not only or part.name in only
    ]
    return [part for part in chosen if part.recipes]


def _check(parts: Sequence[Part], store: RunStore) -> tuple[list[Part], list[str]]:
    """The parts without their damaged runs, and a sentence for each of these; other settings raise an error."""
    sound: list[Part] = []
    failures: list[str] = []
    for part in parts:
        recipes, damaged = store.usable(part.recipes)
        sound += [replace(part, recipes=tuple(recipes))] if recipes else []
        failures += [f"{part.name}: {failure}" for failure in damaged]
    return sound, failures


def _sorted_out(part: Part, store: RunStore) -> tuple[list[Recipe], list[str]]:
    """The recipes that can be trained, and a sentence for each whose source run cannot be used."""
    ready, waiting = [], []
    for recipe in part.recipes:
        checkpoint = recipe.quantize.checkpoint if recipe.quantize else "none"
        is_free = checkpoint == "none" or store.run(recipe).is_finished
        if obstacle := None if is_free else _obstacle(Path(checkpoint)):
            waiting.append(sentence(recipe, f"not run, because {obstacle}"))
        else:
            ready.append(recipe)
    return ready, waiting


def _obstacle(checkpoint: Path) -> str | None:
    """Why no run can start from another's checkpoint, if so."""
    source = read_run(checkpoint.parent)
    advice = f"Delete {source.path} to retrain it."
    if source.damage is not None:
        return f"{source.path}: {source.damage} {advice}"
    if not source.is_finished:
        return f"{source.path} is not finished."
    if not checkpoint.exists():
        return f"{source.path} has no checkpoint.pt. {advice}"
    try:
        load_checkpoint(checkpoint, advice=advice)
    except RunError as error:
        return str(error)
    return None


def _planned(part: Part, store: RunStore, data_dir: Path | None) -> list[tuple[str, int, int, int]]:
    """The initial progress. Loading the data here finds missing files before anything is trained."""
    runs = [store.run(recipe) for recipe in part.recipes]
    if all(run.is_finished for run in runs):
        totals = [run.steps for run in runs]
    else:
        dataset = load_data(part.recipes[0], data_dir, torch.device("cpu"))
        totals = [count_steps(recipe, dataset) for recipe in part.recipes]
    cells = zip(part.recipes, runs, totals, strict=True)
    return [(f"{part.name} {recipe.label}", recipe.seed, run.steps_done, total) for recipe, run, total in cells]


class _Named:
    """Forwards the progress of one part's runs to the study's."""

    def __init__(self, part: str, shown: Progress) -> None:
        self._part, self._shown = part, shown

    def begin(self, cells: Sequence[tuple[str, int, int, int]]) -> None:
        """Nothing: the study has already started."""

    def advance(self, method: str, seed: int, step: int) -> None:
        """A run has reached a step."""
        self._shown.advance(f"{self._part} {method}", seed, step)

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """A run has finished an epoch."""
        self._shown.epoch(f"{self._part} {method}", seed, metrics)
