"""PSF along a run: how close it is to ρ·H·g/‖g‖, and how well an old one predicts fresh ones."""

import io
import json
import math
import shutil
import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vsam.lab.data import Batch
from vsam.lab.files import append, read_regular, write_atomically
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.train import Run, load_data
from vsam.sharpness.ascent import on_sphere
from vsam.sharpness.objective import Objective
from vsam.sharpness.session import untouched

__all__ = ["FILE", "Probe", "Schedule", "follow", "read_psf"]

FILE = "psf.json"
SCALES = {"tiny": (2, 4, 2, 4), "small": (5, 50, 10, 40), "paper": (5, 50, 5, 40)}
"""Windows, the oldest age, PSFs kept at the start of a window, and comparisons with the Hessian."""


class Schedule:
    """When to probe a run of `steps` steps.

    Args:
        steps: of the run.
        scale: of the study.
    """

    def __init__(self, steps: int, scale: str) -> None:
        windows, ages, kept, compared = SCALES[scale]
        self.ages, self.num_kept = ages, kept
        length = ages + kept
        room = max(steps - length, 0)
        self.starts = sorted({round(room * (0.05 + 0.95 * i / max(windows - 1, 1))) for i in range(windows)})
        self.compared = {round(i * (steps - 1) / max(compared - 1, 1)) for i in range(compared)}

    def window(self, step: int) -> int | None:
        """The start of the window that a step is in; the later one if two overlap."""
        length = self.ages + self.num_kept
        return max((start for start in self.starts if start <= step < start + length), default=None)


class Probe:
    """Probes a run before each step without changing it.

    Args:
        run: the run to probe.
        schedule: when to probe.
        folder: where lines and kept PSFs are written, so that a killed run can resume.
    """

    def __init__(self, run: Run, schedule: Schedule, folder: Path) -> None:
        self._run, self._schedule, self._folder = run, schedule, folder
        self.lines = {line["step"]: line for line in _lines(folder) if line["step"] <= run.step}
        self._kept = {step: pair for step, pair in _read_kept(folder).items() if step < run.step}
        write_atomically(folder / "probe.jsonl", "".join(json.dumps(line) + "\n" for line in self.lines.values()))

    def __call__(self, batch: Batch, epoch: int) -> None:
        """Measure what is due before the run's next step."""
        step, schedule = self._run.step, self._schedule
        start = schedule.window(step)
        if start is None and step not in schedule.compared:
            return
        measured = self._measure(batch, epoch, with_hessian=step in schedule.compared)
        psf, gradient = measured.pop("psf"), measured.pop("gradient")
        line = {"step": step + 1, "window": start, **measured, "pairs": self._pairs(step, start, psf, gradient)}
        if start is not None and step < start + schedule.num_kept:
            self._keep(step, start, psf, gradient)
        self.lines[step + 1] = line
        append(self._folder / "probe.jsonl", json.dumps(line) + "\n")

    def _measure(self, batch: Batch, epoch: int, with_hessian: bool) -> dict[str, Any]:
        training, rho = self._run.training, self._run.recipe.rho

        def loss(model: nn.Module, given: Batch) -> Tensor:
            return training.objective(model(given.images), given, epoch)

        with untouched(training.model, [batch], "train") as rewind:
            objective = Objective(training.model, loss, [batch], rewind)
            _, gradient = objective.gradient()
            offset = on_sphere(gradient, rho)
            psf = objective.gradient(offset)[1] - gradient
            found: dict[str, Any] = {"psf": psf, "gradient": gradient}
            found |= {"grad_norm": gradient.norm().item(), "psf_norm": psf.norm().item()}
            if with_hessian:
                first = objective.product(offset)
                found["hessian"] = {
                    "error": (psf - first).norm().item() / psf.norm().item(),
                    "cosine": cosine(psf, first),
                }
        return found

    def _pairs(self, step: int, start: int | None, psf: Tensor, gradient: Tensor) -> list[list[float]]:
        """For each kept PSF of the window: age, cosine and length against the fresh one, and the gradients' cosine."""
        return [
            [step - old, cosine(kept, psf), kept.norm().item() / psf.norm().item(), cosine(before, gradient)]
            for old, (kept, before) in self._kept.items()
            if start is not None and old >= start and 1 <= step - old <= self._schedule.ages
        ]

    def _keep(self, step: int, start: int, psf: Tensor, gradient: Tensor) -> None:
        self._kept = {old: pair for old, pair in self._kept.items() if old >= start} | {step: (psf, gradient)}
        buffer = io.BytesIO()
        torch.save(self._kept, buffer)
        write_atomically(self._folder / "kept.pt", buffer.getvalue())


def follow(run_folder: Path, recipe: Recipe, scale: str, data_dir: Path | None, device: torch.device) -> dict[str, Any]:
    """Train a run once more and follow its PSF, or read earlier results.

    Args:
        run_folder: of the run itself, which stores the result; the copy is trained below it, and removed.
        recipe: of the run.
        scale: of the study.
        data_dir, device: as for training.
    """
    known = read_psf(run_folder)
    if known is not None and known["scale"] == scale:
        return known
    folder = run_folder / "probe"
    with closing(Run(recipe, folder, load_data(recipe, data_dir, device), device)) as run:
        schedule = Schedule(run.total_steps, scale)
        probe = Probe(run, schedule, folder)
        run.before_step = probe
        while not run.is_finished:
            run.train_epoch()
        lines, steps = [probe.lines[step] for step in sorted(probe.lines)], run.total_steps
    content = {"scale": scale, "label": recipe.label, "seed": recipe.seed, "rho": recipe.rho, "steps": steps}
    content |= {"hessian": _hessian(lines), "windows": _windows(lines, schedule)}
    write_atomically(run_folder / FILE, json.dumps(content) + "\n")
    shutil.rmtree(folder)
    return content


def read_psf(run_folder: Path) -> dict[str, Any] | None:
    """Earlier results of a run; None if there are none, or none that can be used."""
    try:
        content = json.loads(read_regular(run_folder / FILE))
    except (OSError, ValueError, RecursionError):
        return None
    is_whole = isinstance(content, dict) and {"scale", "hessian", "windows", "steps"} <= content.keys()
    return content if is_whole else None


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two vectors; 0 if either is zero."""
    lengths = one.norm().item() * other.norm().item()
    return torch.dot(one, other).item() / lengths if lengths else 0.0


def _hessian(lines: Sequence[dict[str, Any]]) -> list[dict[str, float]]:
    return [{"step": line["step"], **line["hessian"]} for line in lines if "hessian" in line]


def _windows(lines: Sequence[dict[str, Any]], schedule: Schedule) -> list[dict[str, Any]]:
    """For each window and age, the means over the kept PSFs, and the lowest and highest cosine."""
    found = []
    for start in schedule.starts:
        pairs = [pair for line in lines if line["window"] == start for pair in line["pairs"]]
        ages = []
        for age in range(1, schedule.ages + 1):
            own = [pair for pair in pairs if pair[0] == age]
            if own:
                cosines = [pair[1] for pair in own]
                ages.append(
                    {
                        "age": age,
                        "cosine": statistics.fmean(cosines),
                        "low": min(cosines),
                        "high": max(cosines),
                        "scale": statistics.fmean(pair[2] for pair in own),
                        "best_factor": statistics.fmean(pair[1] / pair[2] if pair[2] else math.nan for pair in own),
                        "gradient_cosine": statistics.fmean(pair[3] for pair in own),
                        "n": len(own),
                    }
                )
        found.append({"step": start + 1, "ages": ages})
    return found


def _lines(folder: Path) -> list[dict[str, Any]]:
    """The lines written so far; of duplicates the last, which is identical."""
    try:
        texts = read_regular(folder / "probe.jsonl").decode(errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for text in texts:
        try:
            found.append(json.loads(text))
        except ValueError:  # truncated by a kill
            continue
    return found


def _read_kept(folder: Path) -> dict[int, tuple[Tensor, Tensor]]:
    try:
        kept: dict[int, tuple[Tensor, Tensor]] = torch.load(folder / "kept.pt", weights_only=True)
    except FileNotFoundError:
        return {}
    return kept
