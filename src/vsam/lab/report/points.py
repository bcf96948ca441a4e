"""Accuracy against speed, as numbers: one point per row, with standard deviations over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsam.lab.comparison.rows import Row
from vsam.lab.comparison.speed import seed_speed
from vsam.lab.paper.numbers import Published
from vsam.lab.runs.finished import FinishedRun

__all__ = [
    "Spot",
    "accuracy_axis",
    "is_against_sam",
    "published_spots",
    "speed_axis",
    "speed_deviations",
    "speed_spots",
]


@dataclass(frozen=True)
class Spot:
    """A point and its error bars, ours or the paper's.

    Args:
        speed: relative to SAM's; images per second if there is no SAM to compare with.
        speed_std: over seeds, 0 if unknown.
        accuracy: in percent, mean over seeds.
        accuracy_std: likewise.
    """

    speed: float
    speed_std: float
    accuracy: float
    accuracy_std: float


def is_against_sam(rows: Sequence[Row]) -> bool:
    """Whether every row has a speed relative to SAM's."""
    return all(row.ais_ratio_to_sam is not None for row in rows)


def speed_spots(rows: Sequence[Row], deviations: Mapping[str, float]) -> dict[str, Spot]:
    """Our points by label; accuracy is that of the last epoch.

    Args:
        rows: of one table.
        deviations: of the speed over seeds by label, from `speed_deviations`; a missing one counts as 0.
    """
    speeds = [row.ais_ratio_to_sam if is_against_sam(rows) else row.ais for row in rows]
    return {
        row.label: Spot(speed or 0.0, deviations.get(row.label, 0.0), row.accuracy, row.accuracy_std)
        for row, speed in zip(rows, speeds, strict=True)
    }


def published_spots(rows: Sequence[Row], published: Mapping[str, Published]) -> dict[str, Spot]:
    """The paper's points by label, of the best epoch; none if speeds are not relative to SAM's."""
    if not is_against_sam(rows):
        return {}
    return {
        label: Spot(numbers.of_sam / 100, 0.0, numbers.accuracy, numbers.std or 0.0)
        for label, numbers in published.items()
        if numbers.of_sam is not None
    }


def speed_axis(rows: Sequence[Row]) -> str:
    """The label of the speed axis."""
    return "training speed, SAM = 1" if is_against_sam(rows) else "training speed, images per second"


def accuracy_axis(images: str, with_papers: bool) -> str:
    """The label of the accuracy axis.

    Args:
        images: what it was measured on, test or validation.
        with_papers: whether the paper's points are shown, which are of the best epoch.
    """
    if with_papers:
        return f"{images} accuracy, % (filled: last epoch; hollow: best)"
    return f"{images} accuracy of the last epoch, %"


def speed_deviations(rows: Sequence[Row], cells: Sequence[FinishedRun]) -> dict[str, float]:
    """The standard deviation of each label's speed over seeds, in the unit of `speed_spots`.

    Relative speeds compare each run with SAM's of the same seed, so SAM itself has none. Neither do runs that did not
    alternate with SAM: their speeds differ by whatever else the machine was doing.
    """
    speeds: dict[str, list[float]] = {}
    references = {cell.seed: cell for cell in cells if cell.label == "sam"}
    for cell in cells:
        if not is_against_sam(rows):
            speeds.setdefault(cell.label, []).append(cell.summary["ais"])
        elif cell.seed in references and (speed := seed_speed(cell, references[cell.seed])) is not None:
            speeds.setdefault(cell.label, []).append(speed)
    return {label: statistics.stdev(values) for label, values in speeds.items() if len(values) > 1}
