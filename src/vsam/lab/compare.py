"""Comparing methods: every method × seed, trained in turns so that their speeds are fair, and one table."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from vsam.lab.errors import RunError
from vsam.lab.folder import read_lines, read_summary
from vsam.lab.recipe import Recipe
from vsam.lab.train import Run, load_data

__all__ = ["Cell", "Progress", "Row", "Silent", "compare", "run_path", "speed_spread", "summarise"]


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
        ais_ratio_to_sam: AIS over SAM's, if SAM is in the table.
        speed_to_sgd: AIS over SGD's, if SGD is in the table.
        ideal_ratio: 2/(1 + p), the speed against SAM if a pass were all that costs, for p = samples/steps.
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

    def to_dict(self) -> dict[str, Any]:
        """The row in plain types."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """One run of a comparison: what it was, where it is, and what came out."""

    method: str
    seed: int
    path: Path
    summary: dict[str, Any]
    epoch_seconds: list[float]


class Progress(Protocol):
    """Whoever shows how far a comparison is."""

    def begin(self, cells: Sequence[tuple[str, int, int, int]]) -> None:
        """All cells are known: method, seed, steps done, steps in all."""

    def advance(self, method: str, seed: int, step: int) -> None:
        """A cell has reached a step."""

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """A cell has ended an epoch."""


class Silent:
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
    return out / f"{recipe.name}{bits or ''}" / recipe.method / f"seed-{recipe.seed}"


def compare(
    recipes: Sequence[Recipe],
    out: Path,
    data_dir: str | Path | None,
    device: torch.device,
    progress: Progress | None = None,
) -> tuple[list[Cell], list[str]]:
    """Train every recipe, the ones of a seed in turns of one epoch, so that noise of the machine hits all alike.

    Finished runs are kept, begun ones are continued. A run that fails does not stop the others: returns the finished
    cells, and a sentence for each failed one.
    """
    shown = progress or Silent()
    dataset = load_data(recipes[0], data_dir, device)
    seeds = list(dict.fromkeys(recipe.seed for recipe in recipes))
    failures: list[str] = []
    cells: list[Cell] = []
    started = False
    for seed in seeds:
        runs: list[Run] = []
        try:
            for recipe in (recipe for recipe in recipes if recipe.seed == seed):
                try:
                    runs.append(Run(recipe, run_path(out, recipe), dataset, device))
                except RunError as error:
                    failures.append(f"{recipe.method}, seed {seed}: {error}")
            if runs and not started:
                total = runs[0].total_steps
                done = {(r.method, r.seed): total for r in recipes if read_summary(run_path(out, r)) is not None}
                done |= {(run.recipe.method, seed): run.step for run in runs}
                shown.begin([(r.method, r.seed, done.get((r.method, r.seed), 0), total) for r in recipes])
                started = True
            failures += _take_turns(runs, shown)
            cells += [_cell(run) for run in runs if run.is_finished]
        finally:
            for run in runs:
                run.close()
    return cells, failures


def _take_turns(runs: Sequence[Run], shown: Progress) -> list[str]:
    failures = []
    failed: set[int] = set()
    while unfinished := [run for run in runs if not run.is_finished and id(run) not in failed]:
        for run in unfinished:
            method, seed = run.recipe.method, run.recipe.seed
            run.listeners = (_tell(shown.epoch, method, seed),)
            try:
                run.train_epoch(_tell(shown.advance, method, seed))
            except RunError as error:
                failed.add(id(run))
                failures.append(f"{method}, seed {seed}: {error}")
    for run in runs:
        if run.is_finished:
            shown.advance(run.recipe.method, run.recipe.seed, run.total_steps)
    return failures


def _tell(show: Callable[[str, int, Any], None], method: str, seed: int) -> Callable[[Any], None]:
    return lambda value: show(method, seed, value)


def _cell(run: Run) -> Cell:
    summary = run.folder.summary()
    assert summary is not None
    seconds = [line["seconds"] for line in read_lines(run.folder.path / "metrics.jsonl")]
    return Cell(run.recipe.method, run.recipe.seed, run.folder.path, summary, seconds)


def summarise(cells: Iterable[Cell]) -> list[Row]:
    """One row a method, in the order in which they first appear."""
    by_method: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        by_method.setdefault(cell.method, []).append(cell.summary)
    ais = {method: statistics.fmean(s["ais"] for s in summaries) for method, summaries in by_method.items()}
    return [_row(method, summaries, ais) for method, summaries in by_method.items()]


def _row(method: str, summaries: list[dict[str, Any]], ais: dict[str, float]) -> Row:
    accuracy, best = [s["accuracy"] for s in summaries], [s["best"] for s in summaries]
    samples, steps = statistics.fmean(s["samples"] for s in summaries), summaries[0]["steps"]
    return Row(
        data=summaries[0]["data"],
        model=summaries[0]["model"],
        method=method,
        seeds=len(summaries),
        steps=steps,
        accuracy=statistics.fmean(accuracy),
        accuracy_std=_deviation(accuracy),
        best=statistics.fmean(best),
        best_std=_deviation(best),
        samples=samples,
        ais=ais[method],
        ais_ratio_to_sam=ais[method] / ais["sam"] if "sam" in ais else None,
        speed_to_sgd=ais[method] / ais["sgd"] if "sgd" in ais else None,
        ideal_ratio=2 / (1 + samples / steps),
    )


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def speed_spread(cells: Iterable[Cell]) -> dict[str, tuple[float, float]]:
    """For each method the quartiles of its epochs' speed against the SGD epoch that ran in the same turn."""
    cells = list(cells)
    references = {cell.seed: cell.epoch_seconds for cell in cells if cell.method == "sgd"}
    ratios: dict[str, list[float]] = {}
    for cell in cells:
        if cell.seed in references:
            pairs = zip(references[cell.seed], cell.epoch_seconds, strict=False)
            ratios.setdefault(cell.method, []).extend(reference / own for reference, own in pairs)
    return {method: _quartiles(values) for method, values in ratios.items() if values}


def _quartiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4)
    return low, high
