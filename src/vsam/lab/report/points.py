"""Accuracy against speed, as numbers: one point a row, with its deviations over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsam.lab.compare import Row
from vsam.lab.speed import Cell, relative_speed

__all__ = ["SpeedPoint", "is_against_sam", "speed_deviations", "speed_points"]


@dataclass(frozen=True)
class SpeedPoint:
    """A method's place.

    Args:
        label: of the method.
        speed: SAM's is 1; images per second where there is no SAM to compare with.
        speed_std: over seeds, 0 for one seed.
        accuracy: of the last epoch in percent, mean over seeds.
        accuracy_std: likewise.
        row: all other numbers.
    """

    label: str
    speed: float
    speed_std: float
    accuracy: float
    accuracy_std: float
    row: Row


def is_against_sam(rows: Sequence[Row]) -> bool:
    """Whether every row knows its speed against SAM's."""
    return all(row.ais_ratio_to_sam is not None for row in rows)


def speed_points(rows: Sequence[Row], deviations: Mapping[str, float]) -> list[SpeedPoint]:
    """The rows as points.

    Args:
        rows: of one table.
        deviations: of the speed over seeds by label, as `speed_deviations` gives them; a missing one counts as 0.
    """
    against_sam = is_against_sam(rows)
    return [
        SpeedPoint(
            label=row.label,
            speed=(row.ais_ratio_to_sam or 0.0) if against_sam else row.ais,
            speed_std=deviations.get(row.label, 0.0),
            accuracy=row.accuracy,
            accuracy_std=row.accuracy_std,
            row=row,
        )
        for row in rows
    ]


def speed_deviations(rows: Sequence[Row], cells: Sequence[Cell]) -> dict[str, float]:
    """How much the speed of a label differs from seed to seed, in the unit of `speed_points`.

    Against SAM each seed is compared with SAM's run of the same seed, so SAM itself has none.
    """
    speeds: dict[str, list[float]] = {}
    references = {cell.seed: cell for cell in cells if cell.label == "sam"}
    for cell in cells:
        if not is_against_sam(rows):
            speeds.setdefault(cell.label, []).append(cell.summary["ais"])
        elif cell.seed in references:
            speed = relative_speed([cell], [references[cell.seed]])
            speeds.setdefault(cell.label, []).append(speed.ratio)
    return {label: statistics.stdev(values) for label, values in speeds.items() if len(values) > 1}
