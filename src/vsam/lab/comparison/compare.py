"""Comparing methods: every method × seed, alternating epoch by epoch so that their speeds are fair."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from vsam.lab.comparison.progress import NullProgress, Progress
from vsam.lab.data import Dataset
from vsam.lab.errors import InUseError, RunError, UserError
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.finished import FinishedRun
from vsam.lab.runs.store import RunStore, sentence
from vsam.lab.runs.tensorboard import Observe
from vsam.lab.runs.train import Run, load_data

__all__ = ["Train", "compare", "count_steps"]

_Failures = list[tuple[Recipe, str]]
Train = Callable[[Sequence[Recipe], RunStore, Path | None, torch.device, Progress, Observe], list[str]]
"""Trains recipes and returns a sentence for each that is unfinished."""


def compare(
    recipes: Sequence[Recipe],
    out: Path | RunStore,
    data_dir: str | Path | None,
    device: torch.device,
    progress: Progress | None = None,
    observe: Observe = lambda run: None,
    train: Train | None = None,
) -> tuple[list[FinishedRun], list[str]]:
    """Train every recipe; those of a seed alternate epoch by epoch, so that machine noise affects all alike.

    Finished runs are kept, started ones are resumed. A run that fails, is damaged or is in use by another process does
    not stop the others: returns the finished runs, and a sentence for each unfinished one. `observe` is called with
    every run before it trains. If `train` is given, it trains the runs instead, in its own order.
    """
    shown = progress or NullProgress()
    store = out if isinstance(out, RunStore) else RunStore(out)
    recipes, damaged = store.usable(recipes)
    missing = [recipe for recipe in recipes if not store.run(recipe).is_finished]
    if not missing:  # then no data is needed
        return store.finished(recipes), damaged
    dataset = load_data(recipes[0], data_dir, device if train is None else torch.device("cpu"))
    shown.begin([(r.label, r.seed, store.run(r).steps_done, count_steps(r, dataset)) for r in recipes])
    if train is not None:
        sentences = train(missing, store, None if data_dir is None else Path(data_dir), device, shown, observe)
        store.refresh(missing)
        return store.finished(recipes), [*damaged, *sentences]
    failures: _Failures = []
    for seed in dict.fromkeys(recipe.seed for recipe in missing):
        own = [recipe for recipe in missing if recipe.seed == seed]
        failures += _train_seed(own, store, dataset, device, shown, observe, is_first=seed == missing[0].seed)
    store.refresh(missing)
    left = [(recipe, why) for recipe, why in failures if not store.run(recipe).is_finished]
    return store.finished(recipes), [*damaged, *(sentence(recipe, why) for recipe, why in left)]


def count_steps(recipe: Recipe, dataset: Dataset) -> int:
    """The number of steps of a complete run."""
    return recipe.epochs * -(-len(dataset.train_images) // recipe.batch)


def _train_seed(
    recipes: Sequence[Recipe],
    store: RunStore,
    dataset: Dataset,
    device: torch.device,
    shown: Progress,
    observe: Observe,
    *,
    is_first: bool,
) -> _Failures:
    """Train the runs of a seed; returns those that failed. A user's mistake is raised before anything is trained."""
    runs: list[Run] = []
    failures: _Failures = []
    try:
        for recipe in recipes:
            try:
                runs.append(Run(recipe, store.path(recipe), dataset, device))
                observe(runs[-1])
            except (RunError, UserError) as error:
                is_mistaken = isinstance(error, UserError) and not isinstance(error, InUseError)
                if is_mistaken and is_first:
                    raise
                failures.append((recipe, str(error)))
        return failures + _take_turns(runs, shown)
    finally:
        for run in runs:
            run.close()


def _take_turns(runs: Sequence[Run], shown: Progress) -> _Failures:
    failures: _Failures = []
    failed: set[int] = set()
    call, turn = secrets.token_hex(4), 0
    while unfinished := [run for run in runs if not run.is_finished and id(run) not in failed]:
        turn += 1
        for run in unfinished:
            label, seed = run.recipe.label, run.recipe.seed
            run.turn = f"{call}-{turn}"
            run.listeners = (_tell(shown.epoch, label, seed),)
            try:
                run.train_epoch(_tell(shown.advance, label, seed))
            except (RuntimeError, MemoryError) as error:  # ours, and torch's own if memory runs out
                failed.add(id(run))
                failures.append((run.recipe, str(error) or type(error).__name__))
    return failures


def _tell(show: Callable[[str, int, Any], None], method: str, seed: int) -> Callable[[Any], None]:
    return lambda value: show(method, seed, value)
