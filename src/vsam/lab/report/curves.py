"""The curves of a run: metrics over epochs, and what was measured at sampled steps."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vsam.lab.report.downsample import Buckets, backfill, bucket, is_usable
from vsam.lab.report.metrics import EPOCH_METRICS, STEP_METRICS, Metric
from vsam.lab.runs.lines import Lines, number

__all__ = ["epoch_curves", "step_curves"]


def epoch_curves(lines: Lines, epochs: int, problems: list[str]) -> dict[str, Buckets]:
    """The metrics over the epochs by their keys; what is wrong is added to the problems."""
    positions = [line["epoch"] + 1 for line in lines]
    columns = {metric.key: _column(lines, metric, "metrics.jsonl", problems) for metric in EPOCH_METRICS}
    return _not_empty({key: bucket(positions, values, epochs) for key, values in columns.items()})


def step_curves(lines: Lines, steps: int, done: int, problems: list[str]) -> dict[str, Buckets]:
    """Likewise over the steps, of which the first `done` have been made."""
    positions = [line["step"] for line in lines]
    lines = [line | {"psf_share": _share(line)} for line in lines]
    curves = {}
    for metric in STEP_METRICS:
        values = _column(lines, metric, "steps.jsonl", problems)
        x, y = backfill(positions, values, done) if metric.holds else (positions, values)
        curves[metric.key] = bucket(x, y, steps)
    return _not_empty(curves)


def _column(lines: Lines, metric: Metric, name: str, problems: list[str]) -> Sequence[float]:
    values = [number(line.get(metric.key)) for line in lines]
    wrong = sum(line.get(metric.key) is not None and not is_usable(x) for line, x in zip(lines, values, strict=True))
    if wrong:
        problems.append(f"{name}: {wrong:,} of {len(lines):,} values of {metric.key} are not finite: left out.")
    return values


def _share(line: Mapping[str, Any]) -> float | None:
    psf, gradient = number(line.get("psf_norm")), number(line.get("grad_norm"))
    return psf / gradient if gradient > 0 and math.isfinite(psf / gradient) else None


def _not_empty(curves: dict[str, Buckets]) -> dict[str, Buckets]:
    return {key: curve for key, curve in curves.items() if len(curve.index)}
