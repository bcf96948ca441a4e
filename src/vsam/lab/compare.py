"""Train several runs, those of a seed in turns, so that their speeds can be compared."""

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from vsam.lab.data import Dataset
from vsam.lab.errors import DamagedError, InUseError, RunError, UserError
from vsam.lab.files import make_folder
from vsam.lab.progress import NullProgress, Shown
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.run import Run, check_settings, read_run, run_path
from vsam.lab.tensorboard import Observe
from vsam.lab.train import Trainer, load_data

__all__ = ["Failures", "Train", "compare", "count_steps"]


Failures = list[tuple[Recipe, str]]
Train = Callable[[Sequence[Recipe], Path, Path | None, torch.device, Shown, Observe], Failures]
"""Trains recipes below a folder, and returns those that failed with the reasons."""


def compare(
    recipes: Sequence[Recipe],
    out: Path,
    data_dir: str | Path | None,
    device: torch.device,
    progress: Shown | None = None,
    observe: Observe = lambda run: None,
    train: Train | None = None,
) -> tuple[list[Run], list[str]]:
    """Train every recipe. Those of a seed alternate epoch by epoch, so that machine noise affects all alike.

    Finished runs are kept, started ones are resumed. A run that fails, is damaged or is in use by another process does
    not stop the others: returns the finished runs, and a sentence for each unfinished one.

    Args:
        recipes: what to train.
        out: the folder of all runs.
        data_dir: dataset directory.
        device: to train on.
        progress: shows how far the runs are.
        observe: called with every run before it trains.
        train: trains the runs instead, in its own order.
    """
    runs = {run_path(out, recipe): (recipe, read_run(run_path(out, recipe))) for recipe in recipes}
    failures: Failures = []
    missing: list[Recipe] = []
    for recipe, run in runs.values():
        try:
            check_settings(run, recipe)
        except DamagedError as error:
            failures.append((recipe, str(error)))
        else:
            missing += [] if run.is_finished else [recipe]
    if missing:  # otherwise no data is needed, and the folder may be read-only
        make_folder(out)
        shown = progress or NullProgress()
        dataset = load_data(missing[0], data_dir, device if train is None else torch.device("cpu"))
        shown.begin([(r.label, r.seed, run.steps_done, count_steps(r, dataset)) for r, run in runs.values()])
        if train is None:
            failures += _in_turns(missing, out, dataset, device, shown, observe)
        else:
            failures += train(missing, out, None if data_dir is None else Path(data_dir), device, shown, observe)
        runs |= {path: (recipe, read_run(path)) for path, (recipe, _) in runs.items() if recipe in missing}
    finished = {path: run for path, (_, run) in runs.items() if run.is_finished}
    left = [(recipe, why) for recipe, why in failures if run_path(out, recipe) not in finished]
    return list(finished.values()), [f"{recipe.label}, seed {recipe.seed}: {why}" for recipe, why in left]


def count_steps(recipe: Recipe, dataset: Dataset) -> int:
    """Return the number of steps of a complete run."""
    return recipe.epochs * -(-len(dataset.train_images) // recipe.batch)


def _in_turns(
    recipes: Sequence[Recipe], out: Path, dataset: Dataset, device: torch.device, shown: Shown, observe: Observe
) -> Failures:
    """Train seed by seed. A user's mistake in the first one is raised before anything is trained."""
    failures: Failures = []
    for seed in dict.fromkeys(recipe.seed for recipe in recipes):
        runs: list[Trainer] = []
        try:
            for recipe in [recipe for recipe in recipes if recipe.seed == seed]:
                try:
                    runs.append(Trainer(recipe, run_path(out, recipe), dataset, device))
                    observe(runs[-1])
                except (RunError, UserError) as error:
                    is_mistaken = isinstance(error, UserError) and not isinstance(error, InUseError)
                    if is_mistaken and seed == recipes[0].seed:
                        raise
                    failures.append((recipe, str(error)))
            failures += _alternate(runs, shown)
        finally:
            for run in runs:
                run.close()
    return failures


def _alternate(runs: Sequence[Trainer], shown: Shown) -> Failures:
    """Train the runs to their ends, an epoch of each in turn."""
    failures: Failures = []
    call, turn = secrets.token_hex(4), 0
    unfinished = [run for run in runs if not run.is_finished]
    while unfinished:
        turn += 1
        for run in unfinished:
            run.turn = f"{call}-{turn}"
            name = run.recipe.label, run.recipe.seed
            try:
                run.train_epoch(partial(shown.advance, *name))
                shown.epoch(*name, run.metrics[-1])
            except (RuntimeError, MemoryError) as error:  # ours, and torch's own if memory runs out
                failures.append((run.recipe, str(error) or type(error).__name__))
        failed = [recipe for recipe, _ in failures]
        unfinished = [run for run in unfinished if not run.is_finished and run.recipe not in failed]
    return failures
