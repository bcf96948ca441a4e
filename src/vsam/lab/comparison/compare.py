"""Comparing methods: every method × seed, trained in turns so that their speeds are fair, and one table."""

import secrets
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from vsam.lab.comparison.speed import FinishedRun, Speed, read_finished, relative_speed
from vsam.lab.data import Dataset
from vsam.lab.errors import DamagedError, InUseError, RunError, UserError
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.folder import check_settings, read_lines, read_summary
from vsam.lab.runs.train import Run, load_data

__all__ = [
    "FinishedRun",
    "NullProgress",
    "Progress",
    "Row",
    "compare",
    "count_steps",
    "read_finished",
    "run_path",
    "sentence",
    "steps_done",
    "summarise",
    "without_damaged",
]


_NUMBERS = ("accuracy", "best", "samples", "ais")


@dataclass(frozen=True)
class Row:
    """A method's line in the table.

    Args:
        data: the data set.
        model: the network.
        method: by its name in recipes.
        seeds: how many runs.
        steps: of one run.
        accuracy: of the last epoch in percent, mean over seeds, with its standard deviation (0 for one seed).
        best: of the best epoch, likewise.
        samples: second gradients of a run, mean over seeds.
        ais: images per second of training, data loading included and evaluation excluded; mean over seeds.
        ais_ratio_to_sam: the speed against SAM's as `relative_speed` tells it, if SAM is in the table.
        speed_to_sgd: likewise against SGD's.
        ideal_ratio: 2/(1 + p), the speed against SAM if a pass were all that costs, for p = samples/steps.
        label: what the table calls the row: the method, and what was varied.
        quartiles: of the speed against SGD over epochs of the same turns; None where they were not timed together.
        quartiles_to_sam: likewise against SAM.
    """

    data: str
    model: str
    method: str
    seeds: int
    steps: int
    accuracy: float
    accuracy_std: float
    best: float
    best_std: float
    samples: float
    ais: float
    ais_ratio_to_sam: float | None
    speed_to_sgd: float | None
    ideal_ratio: float
    label: str
    quartiles: tuple[float, float] | None
    quartiles_to_sam: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """The row in plain types, for programs."""
        shown_only = ("label", "quartiles", "quartiles_to_sam")
        return {name: value for name, value in asdict(self).items() if name not in shown_only}


class Progress(Protocol):
    """Whoever shows how far a comparison is."""

    def begin(self, cells: Sequence[tuple[str, int, int, int]]) -> None:
        """All cells are known: method, seed, steps done, steps in all."""

    def advance(self, method: str, seed: int, step: int) -> None:
        """A cell has reached a step."""

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """A cell has ended an epoch."""


class NullProgress:
    """Shows nothing."""

    def begin(self, cells: Sequence[tuple[str, int, int, int]]) -> None:
        """Nothing."""

    def advance(self, method: str, seed: int, step: int) -> None:
        """Nothing."""

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """Nothing."""


def run_path(out: Path, recipe: Recipe) -> Path:
    """Where a run of a recipe lives below `out`; quantized runs of a recipe lie beside the others."""
    bits = recipe.quantize and f"-w{recipe.quantize.weight_bits}a{recipe.quantize.activation_bits}"
    return out / f"{recipe.name}{bits or ''}" / recipe.label / f"seed-{recipe.seed}"


def compare(
    recipes: Sequence[Recipe],
    out: Path,
    data_dir: str | Path | None,
    device: torch.device,
    progress: Progress | None = None,
) -> tuple[list[FinishedRun], list[str]]:
    """Train every recipe, the ones of a seed in turns of one epoch, so that noise of the machine hits all alike.

    Finished runs are kept, begun ones are continued. A run that fails, is damaged, or that another process is at, does
    not stop the others: returns the finished cells, and a sentence for each that is not.
    """
    shown = progress or NullProgress()
    recipes, damaged = without_damaged(recipes, out)
    if all(read_summary(run_path(out, recipe)) for recipe in recipes):  # then no data are needed
        return [read_finished(run_path(out, recipe)) for recipe in recipes], damaged
    dataset = load_data(recipes[0], data_dir, device)
    total = count_steps(recipes[0], dataset)
    shown.begin([(r.label, r.seed, steps_done(run_path(out, r), total), total) for r in recipes])
    failures: list[tuple[Recipe, str]] = []
    for seed in dict.fromkeys(recipe.seed for recipe in recipes):
        runs: list[Run] = []
        try:
            for recipe in (recipe for recipe in recipes if recipe.seed == seed):
                try:
                    runs.append(Run(recipe, run_path(out, recipe), dataset, device))
                except (RunError, UserError) as error:
                    is_mistaken = isinstance(error, UserError) and not isinstance(error, InUseError)
                    if is_mistaken and seed == recipes[0].seed:  # nothing is trained yet
                        raise
                    failures.append((recipe, str(error)))
            failures += _take_turns(runs, shown)
        finally:
            for run in runs:
                run.close()
    cells = [read_finished(path) for recipe in recipes if read_summary(path := run_path(out, recipe))]
    left = [(recipe, why) for recipe, why in failures if not read_summary(run_path(out, recipe))]
    return cells, [*damaged, *(sentence(recipe, why) for recipe, why in left)]


def without_damaged(recipes: Sequence[Recipe], out: Path) -> tuple[list[Recipe], list[str]]:
    """The recipes whose folders can be used, and a sentence for each that is damaged; other settings are refused."""
    sound, damaged = [], []
    for recipe in recipes:
        try:
            check_settings(run_path(out, recipe), recipe)
            sound.append(recipe)
        except DamagedError as error:
            damaged.append(sentence(recipe, str(error)))
    return sound, damaged


def sentence(recipe: Recipe, why: str) -> str:
    """Why a run is not finished, with its name."""
    return f"{recipe.label}, seed {recipe.seed}: {why}"


def count_steps(recipe: Recipe, dataset: Dataset) -> int:
    """How many steps a whole run takes."""
    return recipe.epochs * -(-len(dataset.train_images) // recipe.batch)


def steps_done(path: Path, total: int) -> int:
    """How far a run is; a checkpoint within an epoch, which may be a little further, is not opened for that."""
    if read_summary(path) is not None:
        return total
    lines = read_lines(path / "metrics.jsonl")
    return int(lines[-1]["step"]) if lines else 0


def _take_turns(runs: Sequence[Run], shown: Progress) -> list[tuple[Recipe, str]]:
    failures = []
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
            except (RuntimeError, MemoryError) as error:  # ours, and torch's own where memory runs out
                failed.add(id(run))
                failures.append((run.recipe, str(error) or type(error).__name__))
    return failures


def _tell(show: Callable[[str, int, Any], None], method: str, seed: int) -> Callable[[Any], None]:
    return lambda value: show(method, seed, value)


def summarise(cells: Iterable[FinishedRun]) -> list[Row]:
    """One row a label, in the order in which they first appear."""
    by_label: dict[str, list[FinishedRun]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, []).append(cell)
    return [_row(label, group, by_label) for label, group in by_label.items()]


def _row(label: str, cells: list[FinishedRun], by_label: dict[str, list[FinishedRun]]) -> Row:
    first = cells[0].summary
    accuracy, best, samples, ais = ([cell.summary[key] for cell in cells] for key in _NUMBERS)
    to_sam, to_sgd = (_speed(cells, by_label.get(name)) for name in ("sam", "sgd"))
    return Row(
        data=first["data"],
        model=first["model"],
        method=cells[0].method,
        seeds=len(cells),
        steps=first["steps"],
        accuracy=statistics.fmean(accuracy),
        accuracy_std=_deviation(accuracy),
        best=statistics.fmean(best),
        best_std=_deviation(best),
        samples=statistics.fmean(samples),
        ais=statistics.fmean(ais),
        ais_ratio_to_sam=to_sam.ratio if to_sam else None,
        speed_to_sgd=to_sgd.ratio if to_sgd else None,
        ideal_ratio=2 / (1 + statistics.fmean(samples) / first["steps"]),
        label=label,
        quartiles=to_sgd.quartiles if to_sgd else None,
        quartiles_to_sam=to_sam.quartiles if to_sam else None,
    )


def _speed(cells: list[FinishedRun], references: list[FinishedRun] | None) -> Speed | None:
    return relative_speed(cells, references) if references else None


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
