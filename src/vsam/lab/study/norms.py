"""Figure 2 as numbers: the norms of the sampled steps, averaged over equal segments of the run."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from vsam.lab.errors import UserError
from vsam.lab.runs.finished import FinishedRun, read_samples

__all__ = ["STRETCHES", "norms_of"]

STRETCHES = 64
_NAMES = {
    "grad_norms": "grad_norm",
    "psf_norms": "psf_norm",
    "changes_var": "change_var",
    "changes_norm": "change_norm",
}


def norms_of(runs: Sequence[FinishedRun]) -> dict[str, list[list[float | None]]]:
    """Per seed, the means over `STRETCHES` segments of ‖g‖, ‖PSF‖, ĉ_var, ĉ_norm, and the fraction of sampled steps.

    A segment without a sampled step has None. SAM samples every step, so its norms have no gaps.
    """
    by_seed = [_stretches(run) for run in runs]
    return {name: [numbers[name] for numbers in by_seed] for name in (*_NAMES, "rates")}


def _stretches(run: FinishedRun) -> dict[str, list[float | None]]:
    steps = run.summary["steps"]
    count = min(STRETCHES, steps)
    lines: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    expected = run.summary["samples"] - run.summary.get("skipped", 0)
    found, reason = read_samples(run.path, expected, run.checksums.get("steps.jsonl"))
    if reason or any(not 1 <= line["step"] <= steps for line in found):
        raise UserError(
            f"{run.path / 'steps.jsonl'} is damaged: it has {len(found):,} usable lines for "
            f"{expected:,} sampled steps. Delete the run's folder to retrain it."
        )
    for line in found:
        lines[(line["step"] - 1) * count // steps].append(line)
    sizes = [_end(i + 1, count, steps) - _end(i, count, steps) for i in range(count)]
    means = {name: [_mean(stretch, key) for stretch in lines] for name, key in _NAMES.items()}
    return means | {"rates": [len(stretch) / size for stretch, size in zip(lines, sizes, strict=True)]}


def _end(i: int, count: int, steps: int) -> int:
    """The first step, from 0, of segment i."""
    return -(-i * steps // count)


def _mean(lines: list[dict[str, Any]], key: str) -> float | None:
    values = [line[key] for line in lines if line.get(key) is not None and math.isfinite(line[key])]
    return statistics.fmean(values) if values else None
