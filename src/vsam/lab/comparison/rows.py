"""The rows of a comparison: the runs of a method, summarized."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from vsam.lab.comparison.speed import Speed, relative_speed
from vsam.lab.runs.finished import FinishedRun

__all__ = ["Row", "summarise"]

_NUMBERS = ("accuracy", "best", "samples", "ais")


@dataclass(frozen=True)
class Row:
    """A method's line in the table.

    Args:
        data: the dataset.
        model: the network.
        method: by its name in recipes.
        seeds: number of runs.
        steps: per run.
        accuracy: of the last epoch in percent, mean over seeds, with its standard deviation (0 for one seed).
        best: of the best epoch, likewise.
        samples: second gradients per run, mean over seeds.
        ais: images per second of training, data loading included and evaluation excluded; mean over seeds.
        ais_ratio_to_sam: speed relative to SAM, from `relative_speed`, if SAM is in the table.
        speed_to_sgd: likewise relative to SGD.
        ideal_ratio: 2/price, the speed relative to SAM if only passes cost time; price is the passes per step.
        label: the row's name in the table: the method, and what was varied.
        quartiles: of the speed relative to SGD over epochs of the same turns; None if they were not timed together.
        quartiles_to_sam: likewise relative to SAM.
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

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """The row in a study's record, which does not say whether speeds relative to SAM were timed together."""
        known: dict[str, Any] = {name: record[name] for name in cls.__dataclass_fields__ if name in record}
        return cls(quartiles=record.get("speed_quartiles"), quartiles_to_sam=None, **known)

    def to_dict(self) -> dict[str, Any]:
        """The row in plain types."""
        shown_only = ("label", "quartiles", "quartiles_to_sam")
        return {name: value for name, value in asdict(self).items() if name not in shown_only}


def summarise(runs: Iterable[FinishedRun]) -> list[Row]:
    """One row per label, in order of first appearance."""
    by_label: dict[str, list[FinishedRun]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    return [_row(label, group, by_label) for label, group in by_label.items()]


def _row(label: str, runs: list[FinishedRun], by_label: dict[str, list[FinishedRun]]) -> Row:
    first = runs[0].summary
    accuracy, best, samples, ais = ([run.summary[key] for run in runs] for key in _NUMBERS)
    to_sam, to_sgd = (_speed(runs, by_label.get(name)) for name in ("sam", "sgd"))
    return Row(
        data=first["data"],
        model=first["model"],
        method=runs[0].method,
        seeds=len(runs),
        steps=first["steps"],
        accuracy=statistics.fmean(accuracy),
        accuracy_std=_deviation(accuracy),
        best=statistics.fmean(best),
        best_std=_deviation(best),
        samples=statistics.fmean(samples),
        ais=statistics.fmean(ais),
        ais_ratio_to_sam=to_sam.ratio if to_sam else None,
        speed_to_sgd=to_sgd.ratio if to_sgd else None,
        ideal_ratio=2 / statistics.fmean(run.summary["price"] for run in runs),
        label=label,
        quartiles=to_sgd.quartiles if to_sgd else None,
        quartiles_to_sam=to_sam.quartiles if to_sam else None,
    )


def _speed(runs: list[FinishedRun], references: list[FinishedRun] | None) -> Speed | None:
    return relative_speed(runs, references) if references else None


def _deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
