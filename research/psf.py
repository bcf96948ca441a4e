"""PSF along a run: how close it is to ρ·H·g/‖g‖, and how well an old one predicts fresh ones."""

import json
import shutil
import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vsam.lab.data import Batch
from vsam.lab.files import write_atomically
from vsam.lab.jsonl import read_object
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.train import Trainer, load_data
from vsam.sharpness.ascent import on_sphere
from vsam.sharpness.objective import Objective
from vsam.sharpness.session import untouched

__all__ = ["FILE", "Probe", "Schedule", "cosine", "follow"]

FILE = "psf.json"
SCALES = {"tiny": (2, 4, 2, 4), "small": (5, 50, 10, 40)}
"""Windows, the oldest age, PSFs kept at the start of a window, and comparisons with the Hessian."""


class Schedule:
    """Steps of a run of `steps` steps at which PSF is measured."""

    def __init__(self, steps: int, scale: str) -> None:
        windows, self.ages, self.num_kept, compared = SCALES[scale]
        room = max(steps - self.ages - self.num_kept, 0)
        self.starts = sorted({round(room * (0.05 + 0.95 * i / max(windows - 1, 1))) for i in range(windows)})
        self.compared = {round(i * (steps - 1) / max(compared - 1, 1)) for i in range(compared)}

    def window(self, step: int) -> int | None:
        """Return the start of the window that a step is in, the later one if two overlap."""
        length = self.ages + self.num_kept
        return max((start for start in self.starts if start <= step < start + length), default=None)


class Probe:
    """Probes a run before each step without changing it."""

    def __init__(self, run: Trainer, schedule: Schedule) -> None:
        self._run, self._schedule = run, schedule
        self.lines: list[dict[str, Any]] = []
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, batch: Batch, epoch: int) -> None:
        """Measure what is due before the run's next step."""
        step, schedule = self._run.step, self._schedule
        start = schedule.window(step)
        if start is None and step not in schedule.compared:
            return
        psf, gradient, numbers = self._measure(batch, epoch, with_hessian=step in schedule.compared)
        pairs = [
            [step - old, cosine(kept, psf), kept.norm().item() / psf.norm().item(), cosine(before, gradient)]
            for old, (kept, before) in self._kept.items()
            if start is not None and old >= start and 1 <= step - old <= schedule.ages
        ]
        self.lines.append({"step": step + 1, "window": start, **numbers, "pairs": pairs})
        if start is not None and step < start + schedule.num_kept:
            kept = {old: pair for old, pair in self._kept.items() if old >= start}
            self._kept = {**kept, step: (psf, gradient)}

    def _measure(self, batch: Batch, epoch: int, with_hessian: bool) -> tuple[Tensor, Tensor, dict[str, Any]]:
        learner, rho = self._run.learner, self._run.recipe.rho

        def loss(model: nn.Module, given: Batch) -> Tensor:
            return learner.objective(model(given.images), given, epoch)

        with untouched(learner.model, [batch], "train") as rewind:
            objective = Objective(learner.model, loss, [batch], rewind)
            _, gradient = objective.gradient()
            offset = on_sphere(gradient, rho)
            psf = objective.gradient(offset)[1] - gradient
            numbers: dict[str, Any] = {"grad_norm": gradient.norm().item(), "psf_norm": psf.norm().item()}
            if with_hessian:
                first = objective.product(offset)
                error = (psf - first).norm().item() / psf.norm().item()
                numbers["hessian"] = {"error": error, "cosine": cosine(psf, first)}
        return psf, gradient, numbers


def follow(folder: Path, recipe: Recipe, scale: str, device: torch.device) -> dict[str, Any]:
    """Train a copy of a run and follow its PSF, or read earlier results from the run's folder."""
    known = read_object(folder / FILE)
    if known.get("scale") == scale:
        return known
    copy = folder / "probe"
    shutil.rmtree(copy, ignore_errors=True)
    with closing(Trainer(recipe, copy, load_data(recipe, None, device), device)) as run:
        schedule = Schedule(run.total_steps, scale)
        probe = Probe(run, schedule)
        run.before_step = probe
        while not run.is_finished:
            run.train_epoch()
    hessian = [{"step": line["step"], **line["hessian"]} for line in probe.lines if "hessian" in line]
    content = {"scale": scale, "label": recipe.label, "seed": recipe.seed, "rho": recipe.rho}
    content |= {"steps": run.total_steps, "hessian": hessian, "windows": _windows(probe.lines, schedule)}
    write_atomically(folder / FILE, json.dumps(content) + "\n")
    shutil.rmtree(copy)
    return content


def cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of the angle between two vectors, 0 if either is zero."""
    lengths = one.norm().item() * other.norm().item()
    return torch.dot(one, other).item() / lengths if lengths else 0.0


def _windows(lines: Sequence[dict[str, Any]], schedule: Schedule) -> list[dict[str, Any]]:
    """Return for each window and age the means over the kept PSFs, and the lowest and highest cosine."""
    found = []
    for start in schedule.starts:
        pairs = [pair for line in lines if line["window"] == start for pair in line["pairs"]]
        ages = []
        for age in range(1, schedule.ages + 1):
            if own := [pair for pair in pairs if pair[0] == age]:
                cosines = [pair[1] for pair in own]
                numbers = {"cosine": statistics.fmean(cosines), "low": min(cosines), "high": max(cosines)}
                numbers |= {"scale": statistics.fmean(pair[2] for pair in own)}
                numbers |= {"gradient_cosine": statistics.fmean(pair[3] for pair in own)}
                ages.append({"age": age, **numbers, "n": len(own)})
        found.append({"step": start + 1, "ages": ages})
    return found
