"""Runs that belong in one table: same recipe, data and network, any method and seed."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vsam.lab.errors import UserError
from vsam.lab.jsonl import number
from vsam.lab.methods import METHODS, find_method
from vsam.lab.report.figures import Curve
from vsam.lab.rows import Row, summarise
from vsam.lab.run import Run, flat, read_run
from vsam.lab.text import one_line

__all__ = ["METRICS", "Group", "Metric", "find_runs", "group_runs", "labels_of"]

_RUN_FILES = {"config.toml", "metrics.jsonl", "checkpoint.pt", "summary.json"}
_OF_METHODS = {"rho", "own", "use", *(key.partition(".")[0] for method in METHODS for key in method.settings)}
_OF_A_RUN = {"seed", "method", "variant", "checkpoint_seconds", "role", "quantize.checkpoint", "sharpness"}
_MOST_POINTS = 120
_LARGEST = 1e100  # larger values cannot be drawn


class Metric(NamedTuple):
    """A number that was recorded over and over, by its key in a run's file."""

    key: str
    title: str
    axis: str
    source: Literal["epochs", "steps", "sharpness"]
    bounds: tuple[float | None, float | None] = (None, None)


METRICS = (
    Metric("test_accuracy", "Test accuracy", "test accuracy, %", "epochs"),
    Metric("averaged_accuracy", "Test accuracy of the averaged weights", "test accuracy, %", "epochs"),
    Metric("train_accuracy", "Training accuracy", "training accuracy, %", "epochs"),
    Metric("test_loss", "Test loss", "test loss, nats", "epochs"),
    Metric("train_loss", "Training loss", "training loss, nats", "epochs"),
    Metric("rate", "Sampling rate", "sampling rate", "steps", (0, 1.05)),
    Metric("grad_norm", "Gradient norm", "‖g‖", "steps", (0, None)),
    Metric("psf_norm", "PSF norm", "‖PSF‖", "steps", (0, None)),
    Metric("psf_share", "PSF norm relative to gradient norm", "‖PSF‖ / ‖g‖", "steps", (0, None)),
    Metric("change_var", "Mean change of the variance of ‖PSF‖", "change of the variance", "steps"),
    Metric("change_norm", "Mean change of ‖PSF‖ / ‖g‖", "change of the ratio", "steps"),
    Metric("top_eigenvalue", "Top eigenvalue of the Hessian", "top eigenvalue", "sharpness", (0, None)),
    Metric("batch_ascent", "SAM’s sharpness per batch", "L(w + ρ g/‖g‖) − L(w), nats", "sharpness", (0, None)),
)


@dataclass(frozen=True)
class Group:
    """The runs of one table.

    Args:
        recipe, data, model: by name.
        difference: the recipe or settings that distinguish it from other groups of the same data and network, or "".
        slug: for file names, unique in a report.
        runs: finished and unfinished ones by label, in the order of the table.
    """

    recipe: str
    data: str
    model: str
    difference: str
    slug: str
    runs: Mapping[str, Sequence[Run]]

    @cached_property
    def rows(self) -> list[Row]:
        """The table of the finished runs."""
        return summarise({label: runs for label in self.runs if (runs := self.of(label))})

    def of(self, label: str) -> list[Run]:
        """Return the finished runs of a label."""
        return [run for run in self.runs[label] if run.is_finished]

    @property
    def all_runs(self) -> list[Run]:
        """The runs, finished ones first."""
        found = [run for runs in self.runs.values() for run in runs]
        return sorted(found, key=lambda run: not run.is_finished)

    @property
    def finished(self) -> list[Run]:
        """The runs that are in the table."""
        return [run for run in self.all_runs if run.is_finished]

    @property
    def is_validation(self) -> bool:
        """True if the runs are trials of a search, which never see the test images."""
        return self.all_runs[0].is_validation

    @property
    def images(self) -> str:
        """The images that accuracy was measured on, in one word."""
        return "validation" if self.is_validation else "test"

    @property
    def title(self) -> str:
        """The network, the data, and what distinguishes the group."""
        held_out = ["validation: held-out training images"] if self.is_validation else []
        return ", ".join([f"{self.model} on {self.data}", *held_out, *filter(None, [self.difference])])

    @property
    def steps(self) -> int:
        """Steps of a complete run, 0 if unknown."""
        return max(run.num_steps for run in self.all_runs)

    @property
    def is_tiny(self) -> bool:
        """True if the recipe was shrunk by --tiny."""
        return self.recipe.endswith("-tiny")

    def length(self, metric: Metric) -> int:
        """Return the last position on the x axis of a metric."""
        return self.all_runs[0].num_epochs if metric.source == "epochs" else self.steps

    def curves(self, metric: Metric) -> list[Curve]:
        """Return the mean over seeds of every label that has the metric, and every unfinished run by itself."""
        found = []
        for label in self.runs:
            alone = [[run] for run in self.runs[label] if not run.is_finished]
            for runs, is_loose in ((self.of(label), False), *((run, True) for run in alone)):
                if runs and (curve := _curve(label, runs, metric, self.length(metric), is_loose)):
                    found.append(curve)
        return found

    def sampled(self) -> dict[str, NDArray[np.float64]]:
        """Return the fraction of sampled steps in equal parts of the run, for every label that has any."""
        edges = np.linspace(0.5, self.steps + 0.5, max(1, min(self.steps, _MOST_POINTS)) + 1)
        all_steps = np.diff(np.ceil(edges))
        found = {}
        for label in self.runs:
            counts = [np.histogram([line["step"] for line in run.steps], edges)[0] for run in self.of(label)]
            if np.sum(counts):
                found[label] = np.mean(counts, axis=0) / all_steps
        return found


def find_runs(folders: Sequence[Path], say: Callable[[str], object] = lambda text: None) -> list[Path]:
    """Return the folders of runs at or below the given folders, each once and in a stable order.

    Raises:
        UserError: a path is not a folder, or there is no run at all.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UserError(f"{folder} {what}. Give the folder of a run, or one that contains runs.")
        say(f"Searching {folder}")
        for path in _below(folder):
            found.setdefault(os.path.realpath(path), path)
    if not found:
        places = ", ".join(map(str, folders)) or "no folder"
        raise UserError(f"There is no run in {places}. vsam train and vsam compare create runs below runs/.")
    return list(found.values())


def labels_of(groups: Iterable[Group]) -> list[str]:
    """Return the labels of several groups, each once and in order."""
    runs = [(label, run) for group in groups for label, members in group.runs.items() for run in members]
    return list(dict.fromkeys(label for label, _ in sorted(runs, key=lambda one: _place(*one))))


def group_runs(paths: Iterable[Path]) -> tuple[list[Group], list[tuple[Run, str]]]:
    """Read runs. Return their groups, and the runs that are in none, each with the reason."""
    outside: list[tuple[Run, str]] = []
    families: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for path in paths:
        run = read_run(path)
        if run.state in ("new", "broken"):
            outside.append((run, run.problem))
            continue
        shared = _shared_settings(run)
        family = (*(one_line(shared.get(key)) for key in ("name", "data.name", "model")), str(run.is_validation))
        families.setdefault(family, {}).setdefault(repr(sorted(shared.items(), key=str)), []).append(run)
    groups: list[Group] = []
    alike = Counter(family[1:] for family in families)
    for family, members in sorted(families.items()):
        recipe, data, model, _ = family
        differences = _differences([_shared_settings(runs[0]) for runs in members.values()])
        if alike[family[1:]] > 1:
            differences = [", ".join(filter(None, [f"recipe {recipe}", one])) for one in differences]
        for difference, runs in zip(differences, members.values(), strict=True):
            slug = _slug(f"{recipe}-{model}", [group.slug for group in groups])
            groups.append(Group(recipe, data, model, difference, slug, _by_label(_comparable(runs, outside))))
    return groups, outside


def _curve(label: str, runs: Sequence[Run], metric: Metric, total: int, is_loose: bool) -> Curve | None:
    if total < 1:
        return None
    width = -(-total // _MOST_POINTS)
    table = np.ma.masked_invalid([_means(run, metric, total, width) for run in runs])
    mean = table.mean(axis=0)
    known = ~np.ma.getmaskarray(mean)
    if not known.any():
        return None
    first = np.arange(1, total + 1, width)
    middle = (first + np.minimum(first + width - 1, total)) / 2
    low, high = (np.asarray(edge(axis=0))[known] for edge in (table.min, table.max))
    has_band = len(runs) > 1
    return Curve(
        label, middle[known], np.asarray(mean)[known], low if has_band else None, high if has_band else None, is_loose
    )


def _means(run: Run, metric: Metric, total: int, width: int) -> NDArray[np.float64]:
    """Return a run's mean value in each part of `width` positions, NaN where it has none."""
    size = -(-total // width)
    sums, counts = np.zeros(size), np.zeros(size)
    for line in getattr(run, metric.source):
        position = int(line["epoch"]) + 1 if metric.source == "epochs" else int(line["step"])
        value = number(line.get(metric.key))
        if metric.key == "psf_share":
            psf, gradient = number(line.get("psf_norm")), number(line.get("grad_norm"))
            value = psf / gradient if gradient > 0 else np.nan
        if abs(value) < _LARGEST and 1 <= position <= total:
            sums[(position - 1) // width] += value
            counts[(position - 1) // width] += 1
    means: NDArray[np.float64] = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    return means


def _below(folder: Path) -> Iterator[Path]:
    seen: set[str] = set()  # follow links, but not in cycles
    for name, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(below for below in folders if not below.startswith("."))
        if (real := os.path.realpath(name)) in seen or not _RUN_FILES.isdisjoint(files):
            folders.clear()
        if real not in seen and not _RUN_FILES.isdisjoint(files):
            yield Path(name)
        seen.add(real)


def _shared_settings(run: Run) -> dict[str, Any]:
    """Return the settings that all runs of a table share."""
    found = flat(run.settings)
    free = _OF_METHODS | _OF_A_RUN
    return {
        key: value
        for key, value in found.items()
        if value is not None and key not in free and key.partition(".")[0] not in free
    }


def _method_settings(run: Run) -> dict[str, Any]:
    """Return the settings that the run's method reads, or for an unknown method those that any method reads."""
    found = flat(run.settings)
    try:
        keys = set(find_method(run.settings["method"]).settings)
    except UserError:
        keys = {key for key in found if key.partition(".")[0] in _OF_METHODS}
    return {key: found.get(key) for key in sorted(keys)}


def _comparable(runs: Sequence[Run], outside: list[tuple[Run, str]]) -> list[Run]:
    """Leave out runs of another length, whose images differ, and copies, which are not another sample."""
    ordered = sorted(runs, key=lambda run: (not run.is_finished, not run.num_steps))
    steps, kept = ordered[0].num_steps, dict[str, Run]()
    for run in ordered:
        first = kept.setdefault(repr((run.label, run.seed, _method_settings(run))), run)
        if run.num_steps not in (0, steps):
            outside.append(
                (run, f"{ordered[0].path} has the same settings but {steps:,} steps, not {run.num_steps:,}.")
            )
        elif first is not run:
            outside.append((run, f"It has the same settings and seed as {first.path}. Only that one counts."))
    left = [run for run, _ in outside]
    return [run for run in runs if not any(run is other for other in left)]


def _by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs by label, in order. Runs whose methods have other settings get labels of their own."""
    found: dict[str, list[Run]] = {}
    for name in dict.fromkeys(run.label for run in runs):
        members = [run for run in runs if run.label == name]
        for run, difference in zip(members, _differences([_method_settings(run) for run in members]), strict=True):
            label = one_line(f"{name} ({difference})" if difference else name) or "?"
            found.setdefault(label, []).append(run)
    ordered = sorted(found, key=lambda label: _place(label, found[label][0]))
    return {label: sorted(found[label], key=lambda run: run.seed) for label in ordered}


def _differences(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return what differs between several settings, for each as key=value."""
    keys = sorted({key for one in settings for key in one})
    differing = [key for key in keys if len({repr(one.get(key)) for one in settings}) > 1]
    return [", ".join(f"{key.rpartition('.')[2]}={_text(one.get(key))}" for key in differing) for one in settings]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else one_line(value)


def _place(label: str, run: Run) -> tuple[Any, ...]:
    """Return a sort key: methods in their usual order, variants of one by number."""
    names = [method.name for method in METHODS]
    method = str(run.settings["method"])
    parts = re.split(r"(\d+(?:\.\d+)?)", label)
    pairs = [(float(part), "") if place % 2 else (-1.0, part) for place, part in enumerate(parts)]
    return names.index(method) if method in names else len(names), method, pairs


def _slug(name: str, taken: Sequence[str]) -> str:
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:80] or "runs"
    return next(slug for slug in (plain, *(f"{plain}-{i}" for i in range(2, len(taken) + 3))) if slug not in taken)
