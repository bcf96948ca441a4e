"""The rows of a comparison: the runs of a method summarised, with speeds relative to SAM and to the base optimizer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from vsam.lab.recipes.recipe import BASES
from vsam.lab.run import Run
from vsam.lab.statistics import Interval, deviation, difference, mean, quantiles

__all__ = ["Row", "Speed", "by_label", "relative_speed", "seed_speed", "summarise"]

_FEWEST_PAIRS = 20
_FEWEST_PAIRS_OF_A_SEED = 5  # enough here, because an interval over seeds covers the noise of each seed's ratio
_SHOWN_ONLY = ("label", "quartiles", "quartiles_to_sam", "to_base")


@dataclass(frozen=True)
class Row:
    """A method's line in the table.

    Args:
        data: the dataset.
        model: the network.
        method: what ran, `sgd` or `adamw` for the base optimizer alone.
        seeds: number of runs.
        steps: per run.
        accuracy: of the last epoch in percent, mean over seeds, with its standard deviation (0 for one seed).
        best: of the best epoch, likewise.
        samples: second gradients per run, mean over seeds.
        ais: images per second of training, data loading included and evaluation excluded. Mean over seeds.
        ais_ratio_to_sam: speed relative to SAM, from `relative_speed`, if SAM is in the table.
        speed_to_sgd: likewise relative to the base optimizer.
        ideal_ratio: 2/cost, the speed relative to SAM if only passes cost time. The cost is the passes per step.
        label: the row's name in the table: the method, and what was varied.
        quartiles: of the speed relative to the base over epochs of the same turns, or None if they were not timed so.
        quartiles_to_sam: likewise relative to SAM.
        averaged: accuracy of the averaged weights, likewise, or None if a run has none.
        averaged_std: its standard deviation.
        to_base: how much more accurate than the base optimizer, seed by seed where they share seeds.
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
    averaged: float | None = None
    averaged_std: float | None = None
    to_base: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the row in plain types, with the averaged accuracy only if there is one."""
        absent = ("averaged", "averaged_std") if self.averaged is None else ()
        return {name: value for name, value in asdict(self).items() if name not in (*_SHOWN_ONLY, *absent)}


def by_label(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Group runs by their labels, in order of first appearance."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.label, []).append(run)
    return found


def summarise(groups: Mapping[str, Sequence[Run]]) -> list[Row]:
    """Return one row per label, in order, from finished runs."""
    base = next((found for name in BASES if (found := _named(name, groups))), ())
    return [_row(label, runs, base, _named("sam", groups)) for label, runs in groups.items()]


def _named(method: str, groups: Mapping[str, Sequence[Run]]) -> Sequence[Run]:
    """Return the runs labelled with the method's name, else those of its only row, else none."""
    rows = [runs for runs in groups.values() if runs[0].method == method]
    return groups.get(method) or (rows[0] if len(rows) == 1 else ())


def _row(label: str, runs: Sequence[Run], base: Sequence[Run], sam: Sequence[Run]) -> Row:
    first = runs[0].summary

    def column(key: str) -> list[float]:
        return [run.summary[key] for run in runs]

    to_sam, to_base = (relative_speed(runs, others) if others else None for others in (sam, base))
    averaged = column("averaged_accuracy") if all("averaged_accuracy" in run.summary for run in runs) else []
    return Row(
        data=first["data"],
        model=first["model"],
        method=runs[0].method,
        seeds=len(runs),
        steps=first["steps"],
        accuracy=mean(column("accuracy")),
        accuracy_std=deviation(column("accuracy")),
        best=mean(column("best")),
        best_std=deviation(column("best")),
        samples=mean(column("samples")),
        ais=mean(column("ais")),
        ais_ratio_to_sam=to_sam.ratio if to_sam else None,
        speed_to_sgd=to_base.ratio if to_base else None,
        ideal_ratio=2 / mean(column("cost")),
        label=label,
        quartiles=to_base.quartiles if to_base else None,
        quartiles_to_sam=to_sam.quartiles if to_sam else None,
        averaged=mean(averaged) if averaged else None,
        averaged_std=deviation(averaged) if averaged else None,
        to_base=None if not base or runs is base else difference(_accuracies(runs), _accuracies(base)),
    )


def _accuracies(runs: Sequence[Run]) -> dict[int, float]:
    return {run.seed: run.summary["accuracy"] for run in runs}


@dataclass(frozen=True)
class Speed:
    """The speed of runs relative to others.

    Args:
        ratio: 1 for the same speed, 2 for twice as fast.
        quartiles: of the ratio over epochs that ran in the same turn, or None if there were too few.
    """

    ratio: float
    quartiles: tuple[float, float] | None


def relative_speed(runs: Sequence[Run], references: Sequence[Run]) -> Speed:
    """Return the speed of runs relative to reference runs.

    Epochs of one seed that ran in the same turn are paired, and the mean of their cost ratios is taken, so that a turn
    in which the machine was slow weighs no more than others. An epoch whose time per gradient pass, relative to its
    reference, is far from the others' was disturbed: outliers are clipped to the 10th–90th percentile.
    Runs that share fewer than 20 turns were not timed together: their mean AIS are divided, and there are no quartiles.
    """
    pairs = _pairs(runs, references)
    if len(pairs) < _FEWEST_PAIRS:
        ais, reference = (mean(run.summary["ais"] for run in some) for some in (runs, references))
        return Speed(ais / reference, None)
    low, _, high = quantiles([pair.reference.seconds / pair.epoch.seconds for pair in pairs], n=4)
    return Speed(_ratio(pairs), (low, high))


def seed_speed(run: Run, reference: Run) -> float | None:
    """Return a run's speed relative to another with the same seed, or None if they share fewer than 5 turns.

    As `relative_speed`, for statistics over seeds. With fewer than ten epochs, none is clipped.
    """
    pairs = _pairs([run], [reference])
    return _ratio(pairs) if len(pairs) >= _FEWEST_PAIRS_OF_A_SEED else None


class _Epoch(NamedTuple):
    seconds: float
    passes: float


class _Pair(NamedTuple):
    epoch: _Epoch
    reference: _Epoch

    @property
    def disturbance(self) -> float:
        """The ratio of times beyond that of passes: an epoch with more second gradients is not disturbed."""
        return (self.epoch.seconds / self.epoch.passes) / (self.reference.seconds / self.reference.passes)

    def cost(self, low: float, high: float) -> float:
        """Return the ratio of times, with the disturbance clipped to this range."""
        return min(max(self.disturbance, low), high) * self.epoch.passes / self.reference.passes


def _ratio(pairs: Sequence[_Pair]) -> float:
    tenths = quantiles([pair.disturbance for pair in pairs], n=10)
    return 1 / mean(pair.cost(tenths[0], tenths[-1]) for pair in pairs)


def _pairs(runs: Iterable[Run], references: Iterable[Run]) -> list[_Pair]:
    known = {key: epoch for run in references for key, epoch in _timed(run)}
    return [_Pair(epoch, known[key]) for run in runs for key, epoch in _timed(run) if key in known]


def _timed(run: Run) -> list[tuple[tuple[int, str], _Epoch]]:
    """Return the epochs that ran in a turn, with their mean passes per step."""
    epochs = []
    steps = samples = 0
    for line in run.epochs:
        if isinstance(line.get("turn"), str) and line["seconds"] > 0:
            passes = 1 + (line["samples"] - samples) / (line["step"] - steps)
            epochs.append(((run.seed, line["turn"]), _Epoch(line["seconds"], passes)))
        steps, samples = line["step"], line["samples"]
    return epochs
