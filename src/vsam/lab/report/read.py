"""A run's folder as a report needs it: with its curves."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from vsam.lab.report.curves import epoch_curves, step_curves
from vsam.lab.report.downsample import Buckets, bucket
from vsam.lab.runs.facts import VALIDATION
from vsam.lab.runs.finished import StoredRun, read_run, read_samples
from vsam.lab.text import one_line

__all__ = ["DrawnRun", "read_drawn"]


@dataclass(frozen=True)
class DrawnRun(StoredRun):
    """A stored run with what a report draws of it.

    Args:
        curves: the metrics over epochs and over steps, by their keys.
        sampled: which steps were sampled.
    """

    curves: dict[str, Buckets] = field(default_factory=dict)
    sampled: Buckets | None = None

    @property
    def is_validation(self) -> bool:
        """Whether its accuracy is on held-out training images, not on the test images."""
        return self.facts.split == VALIDATION


def read_drawn(path: Path) -> DrawnRun:
    """Read a folder; never fails, for what is wrong is in the result."""
    run = DrawnRun(**vars(read_run(path)))
    if run.state in ("new", "broken"):
        return replace(run, state="broken")
    problems = list(run.problems)
    planned = run.settings.get("epochs")
    curves = epoch_curves(run.epochs, planned if isinstance(planned, int) else len(run.epochs), problems)
    sampled = None
    if run.steps:
        lines, reason = read_samples(path, int(run.summary.get("samples", 0)), run.checksums.get("steps.jsonl"))
        problems += [reason] if reason else []
        positions = [line["step"] for line in lines]
        done = run.steps if run.is_finished else min(run.steps, max([*positions, run.epochs[-1]["step"]]))
        curves |= step_curves(lines, run.steps, int(done), problems)
        sampled = bucket(positions, [1.0] * len(positions), run.steps)
    return replace(run, problems=tuple(problems), label=one_line(run.label) or "?", curves=curves, sampled=sampled)
