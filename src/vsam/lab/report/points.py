"""Accuracy against speed, as numbers: one spot a row, with its deviations over seeds."""

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
    """A point and its bars, ours or the paper's.

    Args:
        speed: SAM's is 1; images per second where there is no SAM to compare with.
        speed_std: over seeds, 0 where there is none.
        accuracy: in percent, mean over seeds.
        accuracy_std: likewise.
    """

    speed: float
    speed_std: float
    accuracy: float
    accuracy_std: float


def is_against_sam(rows: Sequence[Row]) -> bool:
    """Whether every row knows its speed against SAM's."""
    return all(row.ais_ratio_to_sam is not None for row in rows)


def speed_spots(rows: Sequence[Row], deviations: Mapping[str, float]) -> dict[str, Spot]:
    """Where our rows stand, by label; the accuracy is of the last epoch.

    Args:
        rows: of one table.
        deviations: of the speed over seeds by label, as `speed_deviations` gives them; a missing one counts as 0.
    """
    speeds = [row.ais_ratio_to_sam if is_against_sam(rows) else row.ais for row in rows]
    return {
        row.label: Spot(speed or 0.0, deviations.get(row.label, 0.0), row.accuracy, row.accuracy_std)
        for row, speed in zip(rows, speeds, strict=True)
    }


def published_spots(rows: Sequence[Row], published: Mapping[str, Published]) -> dict[str, Spot]:
    """Where the paper's numbers stand, by label, of the best epoch; nowhere if speeds are not against SAM's."""
    if not is_against_sam(rows):
        return {}
    return {
        label: Spot(numbers.of_sam / 100, 0.0, numbers.accuracy, numbers.std or 0.0)
        for label, numbers in published.items()
        if numbers.of_sam is not None
    }


def speed_axis(rows: Sequence[Row]) -> str:
    """The title of the speed's axis."""
    return "training speed, SAM = 1" if is_against_sam(rows) else "training speed, images per second"


def accuracy_axis(images: str, with_papers: bool) -> str:
    """The title of the accuracy's axis.

    Args:
        images: that it was measured on, test or validation.
        with_papers: whether the paper's points are there, which are not of the last epoch.
    """
    if with_papers:
        return f"{images} accuracy, % (filled: last epoch; hollow: best)"
    return f"{images} accuracy of the last epoch, %"


def speed_deviations(rows: Sequence[Row], cells: Sequence[FinishedRun]) -> dict[str, float]:
    """How much the speed of a label differs from seed to seed, in the unit of `speed_spots`.

    Against SAM each seed is compared with SAM's run of the same seed, so SAM itself has none. Runs that took no turns
    with SAM have none either: their speeds differ by what else the machine did.
    """
    speeds: dict[str, list[float]] = {}
    references = {cell.seed: cell for cell in cells if cell.label == "sam"}
    for cell in cells:
        if not is_against_sam(rows):
            speeds.setdefault(cell.label, []).append(cell.summary["ais"])
        elif cell.seed in references and (speed := seed_speed(cell, references[cell.seed])) is not None:
            speeds.setdefault(cell.label, []).append(speed)
    return {label: statistics.stdev(values) for label, values in speeds.items() if len(values) > 1}
