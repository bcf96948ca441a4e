"""Reading a run's folder for a report, with its metrics per epoch and per sampled step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vsam.lab.report.downsample import Buckets, backfill, bucket, is_usable
from vsam.lab.report.metrics import EPOCH_METRICS, SHARPNESS_METRICS, STEP_METRICS, Metric
from vsam.lab.runs.facts import VALIDATION
from vsam.lab.runs.finished import StoredRun, read_run, read_samples, read_watched
from vsam.lab.runs.lines import Lines, number
from vsam.lab.text import one_line

__all__ = ["DrawnRun", "read_drawn"]


@dataclass(frozen=True)
class DrawnRun(StoredRun):
    """A stored run with its curves.

    Args:
        curves: the metrics over epochs and over steps, by key.
        sampled: which steps were sampled.
        loose: how many top eigenvalues had not converged, and how many there are.
    """

    curves: dict[str, Buckets] = field(default_factory=dict)
    sampled: Buckets | None = None
    loose: tuple[int, int] = (0, 0)

    @property
    def is_validation(self) -> bool:
        """Whether its accuracy was measured on held-out training images instead of test images."""
        return self.facts.split == VALIDATION


def read_drawn(path: Path) -> DrawnRun:
    """Read a folder; never fails: problems are part of the result."""
    run = DrawnRun(**vars(read_run(path)))
    if run.state in ("new", "broken"):
        return replace(run, state="broken")
    problems = list(run.problems)
    planned = run.settings.get("epochs")
    curves = _epoch_curves(run.epochs, planned if isinstance(planned, int) else len(run.epochs), problems)
    sampled = None
    if run.steps:
        lines, reason = read_samples(path, int(run.summary.get("samples", 0)), run.checksums.get("steps.jsonl"))
        problems += [reason] if reason else []
        positions = [line["step"] for line in lines]
        done = run.steps if run.is_finished else min(run.steps, max([*positions, run.epochs[-1]["step"]]))
        curves |= _step_curves(lines, run.steps, int(done), problems)
        sampled = bucket(positions, [1.0] * len(positions), run.steps)
    watched, reason = read_watched(path, run.checksums.get("sharpness.jsonl"))
    problems += [reason] if reason else []
    if run.steps:
        curves |= _sharpness_curves(watched, run.steps, problems)
    flags = [line["top_eigenvalue_converged"] for line in watched if "top_eigenvalue_converged" in line]
    return replace(
        run,
        problems=tuple(problems),
        label=one_line(run.label) or "?",
        curves=curves,
        sampled=sampled,
        loose=(sum(flag is not True for flag in flags), len(flags)),
    )


def _epoch_curves(lines: Lines, epochs: int, problems: list[str]) -> dict[str, Buckets]:
    """The metrics over epochs, by key; appends to the problems."""
    positions = [line["epoch"] + 1 for line in lines]
    columns = {metric.key: _column(lines, metric, "metrics.jsonl", problems) for metric in EPOCH_METRICS}
    return _not_empty({key: bucket(positions, values, epochs) for key, values in columns.items()})


def _step_curves(lines: Lines, steps: int, done: int, problems: list[str]) -> dict[str, Buckets]:
    """Likewise over steps, of which the first `done` are done."""
    positions = [line["step"] for line in lines]
    lines = [line | {"psf_share": _share(line)} for line in lines]
    curves = {}
    for metric in STEP_METRICS:
        values = _column(lines, metric, "steps.jsonl", problems)
        x, y = backfill(positions, values, done) if metric.holds else (positions, values)
        curves[metric.key] = bucket(x, y, steps)
    return _not_empty(curves)


def _sharpness_curves(lines: Lines, steps: int, problems: list[str]) -> dict[str, Buckets]:
    """What was measured at regular intervals; a failed measurement has no point, and is a problem."""
    positions = [line["step"] for line in lines]
    failed = [line for line in lines if "problem" in line]
    if failed:
        why = one_line(failed[0]["problem"])
        problems.append(f"sharpness.jsonl: {len(failed):,} of {len(lines):,} measurements failed. The first: {why}")
    columns = {metric.key: _column(lines, metric, "sharpness.jsonl", problems) for metric in SHARPNESS_METRICS}
    return _not_empty({key: bucket(positions, values, steps) for key, values in columns.items()})


def _column(lines: Lines, metric: Metric, name: str, problems: list[str]) -> Sequence[float]:
    values = [number(line.get(metric.key)) for line in lines]
    wrong = sum(line.get(metric.key) is not None and not is_usable(x) for line, x in zip(lines, values, strict=True))
    if wrong:
        problems.append(f"{name}: {wrong:,} of {len(lines):,} values of {metric.key} are not finite and were left out.")
    return values


def _share(line: Mapping[str, Any]) -> float | None:
    psf, gradient = number(line.get("psf_norm")), number(line.get("grad_norm"))
    return psf / gradient if gradient > 0 and math.isfinite(psf / gradient) else None


def _not_empty(curves: dict[str, Buckets]) -> dict[str, Buckets]:
    return {key: curve for key, curve in curves.items() if len(curve.index)}
