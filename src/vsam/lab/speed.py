"""Speeds of runs that took turns on one machine, so that its noise hit all alike."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsam.lab.errors import RunError
from vsam.lab.folder import read_lines, read_summary

__all__ = ["Cell", "Speed", "read_cell", "relative_speed"]

_FEWEST_PAIRS = 20


@dataclass(frozen=True)
class Cell:
    """One finished run: what it was, where it is, what came out, and the metrics of its epochs.

    Args:
        label: the method, or the method and what distinguishes this run from others of its recipe.
        method: by its name in recipes.
        seed: of the run.
        path: its folder.
        summary: what `summary.json` holds.
        epochs: the lines of `metrics.jsonl`.
    """

    label: str
    method: str
    seed: int
    path: Path
    summary: dict[str, Any]
    epochs: list[dict[str, Any]]


def read_cell(path: Path) -> Cell:
    """The finished run in a folder."""
    summary = read_summary(path)
    if summary is None:
        raise RunError(f"{path} holds no finished run.")
    method = summary["method"]
    return Cell(
        label=summary.get("label", method),
        method=method,
        seed=summary["seed"],
        path=path,
        summary=summary,
        epochs=read_lines(path / "metrics.jsonl"),
    )


@dataclass(frozen=True)
class Speed:
    """How fast runs were against others.

    Args:
        ratio: 1 for the same speed, 2 for twice as fast.
        quartiles: of the ratio over epochs that ran in the same turn, or None where too few did.
    """

    ratio: float
    quartiles: tuple[float, float] | None


def relative_speed(runs: Iterable[Cell], references: Iterable[Cell]) -> Speed:
    """The speed of runs against references.

    Epochs of one seed that ran in the same turn are paired, the tenth of the pairs with the largest and the tenth with
    the smallest ratio are left out, and the times of the rest are summed and divided. Runs that share fewer than 20
    turns were not timed together: their mean AIS are divided, and there are no quartiles.
    """
    runs, references = list(runs), list(references)
    pairs = sorted(_pairs(runs, references), key=lambda pair: pair[1] / pair[0])
    if len(pairs) < _FEWEST_PAIRS:
        return Speed(_mean_ais(runs) / _mean_ais(references), None)
    outer = len(pairs) // 10
    kept = pairs[outer:-outer]
    low, _, high = statistics.quantiles([reference / own for own, reference in pairs], n=4)
    return Speed(sum(reference for _, reference in kept) / sum(own for own, _ in kept), (low, high))


def _pairs(runs: Iterable[Cell], references: Iterable[Cell]) -> list[tuple[float, float]]:
    """The seconds of a run's epoch and of the reference's epoch in the same turn."""
    seconds = {(cell.seed, line["turn"]): line["seconds"] for cell in references for line in _timed(cell)}
    keys = [((cell.seed, line["turn"]), line["seconds"]) for cell in runs for line in _timed(cell)]
    return [(own, seconds[key]) for key, own in keys if key in seconds]


def _timed(cell: Cell) -> list[dict[str, Any]]:
    return [line for line in cell.epochs if line.get("turn") is not None]


def _mean_ais(cells: Sequence[Cell]) -> float:
    return statistics.fmean(cell.summary["ais"] for cell in cells)
