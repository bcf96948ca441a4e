"""Runs that belong in one table: same recipe, data and network, any method and seed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vsam.lab.comparison.rows import Row, summarise
from vsam.lab.errors import UserError
from vsam.lab.methods import METHODS, find_method
from vsam.lab.report.downsample import Buckets, merge
from vsam.lab.report.metrics import EPOCH_METRICS, VALIDATION_METRICS, Metric
from vsam.lab.report.read import DrawnRun
from vsam.lab.report.style import place_of
from vsam.lab.runs.facts import Facts
from vsam.lab.runs.folder import flat
from vsam.lab.text import one_line

__all__ = ["Group", "group_runs", "labels_of"]

_OF_METHODS = {"rho", "own", "use", *(key.partition(".")[0] for method in METHODS for key in method.settings)}
_OF_A_RUN = {"seed", "method", "variant", "checkpoint_seconds", "role", "quantize.checkpoint"}


@dataclass(frozen=True)
class Group:
    """The runs of one table, finished and unfinished, ordered by label and seed.

    Args:
        model: the network.
        data: the dataset.
        recipe: by name.
        difference: the settings that distinguish it from other groups of the same recipe, or "".
        slug: for file names; unique in a report.
        runs: with one label per setting.
        rows: the table of the finished runs.
    """

    model: str
    data: str
    recipe: str
    difference: str
    slug: str
    runs: tuple[DrawnRun, ...]
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """What the group is, in one line."""
        images = ["validation: held-out training images"] if self.is_validation else []
        return ", ".join([f"{self.model} on {self.data}", *images, *filter(None, [self.difference])])

    @property
    def is_validation(self) -> bool:
        """Whether the runs are trials of a search, which never see the test images; all of them are, or none."""
        return self.runs[0].is_validation

    @property
    def images(self) -> str:
        """The images that accuracy was measured on, in one word."""
        return "validation" if self.is_validation else "test"

    @property
    def epoch_metrics(self) -> tuple[Metric, ...]:
        """The learning curves, named by the images they were measured on."""
        return VALIDATION_METRICS if self.is_validation else EPOCH_METRICS

    @property
    def facts(self) -> Facts:
        """The size of a finished run; without one, what is known of an unfinished one."""
        return next(iter(self.finished), self.runs[0]).facts

    @property
    def steps(self) -> int:
        """Of a complete run, 0 if unknown."""
        return max(run.steps for run in self.runs)

    @property
    def labels(self) -> list[str]:
        """The labels, in order."""
        return list(dict.fromkeys(run.label for run in self.runs))

    @property
    def finished(self) -> list[DrawnRun]:
        """The runs that are in the table."""
        return [run for run in self.runs if run.state == "finished"]

    @property
    def most_seeds(self) -> int:
        """The most finished runs of any label."""
        return max((row.seeds for row in self.rows), default=0)

    @property
    def is_tiny(self) -> bool:
        """Whether the recipe was shrunk by --tiny: such runs test the program and say nothing about methods."""
        return self.recipe.endswith("-tiny")

    def seeds_of(self, label: str) -> int:
        """How many finished runs a label has."""
        return sum(run.label == label for run in self.finished)

    def has(self, key: str) -> bool:
        """Whether any run has a metric."""
        return any(key in run.curves for run in self.runs)

    def curve(self, label: str, key: str) -> Buckets | None:
        """A metric over all finished runs of a label, if they have it."""
        parts = [run.curves[key] for run in self.finished if run.label == label and key in run.curves]
        return merge(parts) if parts else None

    @property
    def loose(self) -> tuple[int, int]:
        """How many top eigenvalues had not converged, and how many were measured during training."""
        return sum(run.loose[0] for run in self.runs), sum(run.loose[1] for run in self.runs)

    def loose_curves(self, key: str) -> list[tuple[DrawnRun, Buckets]]:
        """A metric of each unfinished run that has it."""
        return [(run, run.curves[key]) for run in self.runs if run.state == "unfinished" and key in run.curves]


def labels_of(groups: Iterable[Group]) -> list[str]:
    """The labels of several groups, each once: methods in their usual order, variants by number."""
    runs = sorted((run for group in groups for run in group.runs), key=_place)
    return list(dict.fromkeys(run.label for run in runs))


def group_runs(runs: Iterable[DrawnRun]) -> tuple[list[Group], list[DrawnRun]]:
    """The groups, and the runs left out of them: broken ones, duplicates and those of another length."""
    outside: list[DrawnRun] = []
    families: dict[tuple[str, str, str, bool], dict[tuple[Any, ...], list[DrawnRun]]] = {}
    for run in runs:
        if run.state == "broken":
            outside.append(run)
            continue
        settings = _shared_settings(run)
        recipe, data, model = (one_line(settings.get(key)) for key in ("name", "data.name", "model"))
        key = tuple(sorted((key, repr(value)) for key, value in settings.items()))
        families.setdefault((recipe, data, model, run.is_validation), {}).setdefault(key, []).append(run)
    groups: list[Group] = []
    for (recipe, data, model, _), members in sorted(families.items()):
        differences = _differences([_shared_settings(member[0]) for member in members.values()])
        for difference, member in zip(differences, members.values(), strict=True):
            fitting, longer = _of_one_length(member)
            kept, twice = _without_copies(_distinct_labels(fitting))
            outside += longer + twice
            slug = _slug(f"{recipe}-{model}", [group.slug for group in groups])
            rows = tuple(summarise(run.finished for run in kept if run.state == "finished"))
            groups.append(Group(model, data, recipe, difference, slug, tuple(kept), rows))
    return groups, outside


def _shared_settings(run: DrawnRun) -> dict[str, Any]:
    found = flat(run.settings)
    own = {key for key in found if key in _OF_A_RUN or key.split(".")[0] in _OF_METHODS | {"sharpness"}}
    return {key: value for key, value in found.items() if key not in own and value is not None}


def _method_settings(run: DrawnRun) -> dict[str, Any]:
    """The settings that the run's method reads; for an unknown method, those that any method reads."""
    found = flat(run.settings)
    try:
        keys = set(find_method(run.method).settings)
    except UserError:
        keys = {key for key in found if key.split(".")[0] in _OF_METHODS}
    return {key: found.get(key) for key in sorted(keys)}


def _distinct_labels(runs: Sequence[DrawnRun]) -> list[DrawnRun]:
    """Add settings to the labels of runs that share a label but differ in them: their mean would say nothing."""
    by_label: dict[str, list[DrawnRun]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    renamed: list[DrawnRun] = []
    for members in by_label.values():
        differences = _differences([_method_settings(run) for run in members])
        for run, difference in zip(members, differences, strict=True):
            renamed.append(replace(run, label=f"{run.label} ({difference})") if difference else run)
    return sorted(renamed, key=_place)


def _of_one_length(runs: Sequence[DrawnRun]) -> tuple[list[DrawnRun], list[DrawnRun]]:
    """Split off runs with another number of steps: same settings, but other images."""
    finished_first = sorted(runs, key=lambda run: (run.state != "finished", not run.steps))
    steps = finished_first[0].steps
    reason = f"{finished_first[0].path} has the same settings but another number of steps, {steps:,}."
    return (
        [run for run in runs if run.steps in (0, steps)],
        [replace(run, state="broken", problems=(*run.problems, reason)) for run in runs if run.steps not in (0, steps)],
    )


def _without_copies(runs: Sequence[DrawnRun]) -> tuple[list[DrawnRun], list[DrawnRun]]:
    """Split off duplicates: a second run with the same settings and seed is not another sample."""
    kept: dict[tuple[str, int], DrawnRun] = {}
    twice: list[DrawnRun] = []
    for run in sorted(runs, key=lambda run: run.state != "finished"):
        first = kept.setdefault((run.label, run.seed), run)
        if first is not run:
            reason = f"It has the same settings and seed as {first.path}: only that one counts."
            twice.append(replace(run, state="broken", problems=(*run.problems, reason)))
    return [run for run in runs if kept[run.label, run.seed] is run], twice


def _differences(settings: Sequence[dict[str, Any]]) -> list[str]:
    """For each of several settings, what differs between them, as key=value."""
    keys = sorted({key for one in settings for key in one})
    differing = [key for key in keys if len({repr(one.get(key)) for one in settings}) > 1]
    return [", ".join(f"{key.split('.')[-1]}={_text(one.get(key))}" for key in differing) for one in settings]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else one_line(value)


def _place(run: DrawnRun) -> tuple[Any, ...]:
    """In the order of all figures, then by seed."""
    return (*place_of(run.method, run.label), run.seed)


def _slug(name: str, taken: Sequence[str]) -> str:
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:80] or "runs"
    number = 1
    while (slug := plain if number == 1 else f"{plain}-{number}") in taken:
        number += 1
    return slug
