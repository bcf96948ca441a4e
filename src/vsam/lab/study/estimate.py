"""What a study will take before it is run: its runs, how many are done, hours and disk."""

import re
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from vsam.lab import models
from vsam.lab.data.catalog import describe_one
from vsam.lab.methods import find_method
from vsam.lab.paper.numbers import reference
from vsam.lab.recipes.files import header_parts, recipe_names
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.finished import StoredRun
from vsam.lab.runs.store import RunStore
from vsam.lab.study.run import chosen_parts
from vsam.lab.study.study import Part, Scale, Study

__all__ = ["Estimate", "PartEstimate", "estimate_study"]

MEASURED, PAPER, RECIPE = "runs in this folder", "the paper's speeds on an RTX 3090", "the recipes' headers"
_COPIES = 3  # copies of the parameters in a checkpoint: weights, momentum, and a method's memory
_BYTES_PER_SAMPLE, _BYTES_PER_EPOCH = 250, 400  # of the lines that a run writes
_VSAM = "vsam"  # whose speed a recipe's header states


@dataclass(frozen=True)
class PartEstimate:
    """What one part takes.

    Args:
        name: of the part.
        runs: total.
        finished: of them.
        started: but not finished.
        hours: of training left, for runs whose time is known.
        bytes: of disk that the remaining runs will take.
        hours_from: where the times come from.
        unknown: runs whose time is unknown.
    """

    name: str
    runs: int
    finished: int
    started: int
    hours: float
    bytes: int
    hours_from: tuple[str, ...]
    unknown: int

    @property
    def missing(self) -> int:
        """Runs left to train or to finish."""
        return self.runs - self.finished


@dataclass(frozen=True)
class Estimate:
    """What a study takes, part by part; `free` is the disk space left in bytes."""

    study: str
    scale: Scale
    parts: tuple[PartEstimate, ...]
    free: int

    @property
    def missing(self) -> int:
        """Runs left to train or to finish."""
        return sum(part.missing for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """The estimate in plain types."""
        totals = {
            name: sum(getattr(part, name) for part in self.parts)
            for name in ("runs", "finished", "started", "missing", "hours", "bytes", "unknown")
        }
        parts = [{**asdict(part), "missing": part.missing} for part in self.parts]
        return {"study": self.study, "scale": self.scale, **totals, "free_bytes": self.free, "parts": parts}

    def table(self) -> Table:
        """A line per part."""
        table = Table(box=None, pad_edge=False)
        for heading in ("part", "runs", "finished", "started", "to train", "time", "disk"):
            table.add_column(heading, justify="left" if heading == "part" else "right", overflow="fold")
        for part in self.parts:
            counts = (part.runs, part.finished, part.started, part.missing)
            table.add_row(part.name, *map(str, counts), _time(part.hours, part.unknown), _size(part.bytes))
        return table

    def sentence(self) -> str:
        """The totals, and where the times come from."""
        if not self.missing:
            return f"{self.study} at scale {self.scale}: all {sum(part.runs for part in self.parts)} runs are finished."
        hours, unknown = sum(part.hours for part in self.parts), sum(part.unknown for part in self.parts)
        sources = " and ".join(dict.fromkeys(source for part in self.parts for source in part.hours_from))
        on = "GPU " if self.scale == "paper" else ""
        runs = f"{self.missing} run{'' if self.missing == 1 else 's'} to train"
        time = f"about {_time(hours)} of {on}training (from {sources})" if sources else "of unknown time"
        rest = f" and {unknown} runs of unknown time" if unknown and sources else ""
        size = sum(part.bytes for part in self.parts)
        full = f" Only {_size(self.free)} is free." if size > self.free else ""
        return f"{self.study} at scale {self.scale}: {runs}, {time}{rest}, about {_size(size)} of disk.{full}"


class _Time(NamedTuple):
    seconds: float
    source: str


def estimate_study(
    study: Study, scale: Scale, seeds: int, out: Path, *, only: Sequence[str] = (), methods: Sequence[str] = ()
) -> Estimate:
    """What is left to do of a study; nothing is written, and no data is loaded.

    Times are those of finished runs of the same part in the folder, scaled by gradient passes for another method;
    without any, the paper's speeds if the setting is the paper's, else the speed in the recipe's header.

    Args:
        study: one of `STUDIES` that trains networks.
        scale: tiny, small or paper.
        seeds: number of seeds, at least 1.
        out: the folder of all studies.
        only: names of the parts to train; all if empty.
        methods: names of the methods to train; all if empty.
    """
    store = RunStore(out / "runs")
    parts = chosen_parts(study.plan(scale, seeds, store.out), only, methods)
    place = next(path for path in (out, *out.absolute().parents) if path.exists())
    found = tuple(_estimate(part, store) for part in parts)
    return Estimate(study.name, scale, found, shutil.disk_usage(place).free)


def _estimate(part: Part, store: RunStore) -> PartEstimate:
    runs = [store.run(recipe) for recipe in part.recipes]
    finished = [run for run in runs if run.is_finished]
    missing = [(recipe, run) for recipe, run in zip(part.recipes, runs, strict=True) if not run.is_finished]
    times = [(_time_of(recipe, finished), run) for recipe, run in missing]
    known = [(time, run) for time, run in times if time is not None]
    return PartEstimate(
        name=part.name,
        runs=len(runs),
        finished=len(finished),
        started=sum(run.state == "unfinished" for run in runs),
        hours=sum(time.seconds * _left(run) for time, run in known) / 3600,
        bytes=sum(_bytes(recipe) for recipe, _ in missing),
        hours_from=tuple(dict.fromkeys(time.source for time, _ in known)),
        unknown=len(missing) - len(known),
    )


def _left(run: StoredRun) -> float:
    """The fraction of a run that is left to train."""
    return 1 - run.steps_done / run.steps if run.steps else 1.0


def _time_of(recipe: Recipe, finished: Sequence[StoredRun]) -> _Time | None:
    passes = find_method(recipe.method).passes
    own = [run.summary["seconds"] for run in finished if run.label == recipe.label]
    others = [run.summary["seconds"] * passes / find_method(run.method).passes for run in finished]
    if own or others:
        return _Time(statistics.fmean(own or others), MEASURED)
    published, images = reference(recipe, recipe.label), _num_images(recipe)
    if published is not None and published.ais and images:
        return _Time(recipe.epochs * images / published.ais, PAPER)
    speed = _header_speed(recipe)
    if speed is None or not images:
        return None
    return _Time(recipe.epochs * images / speed * passes / find_method(_VSAM).passes, RECIPE)


def _header_speed(recipe: Recipe) -> float | None:
    """The speed of vSAM in images per second that the recipe's header states, if it is for the same network."""
    names = [name for name in recipe_names() if recipe.name.startswith(name)]
    if not names or load_recipe(max(names, key=len)).model != recipe.model:
        return None
    found = re.search(r"([\d,]+) images/s", header_parts(max(names, key=len)).get("time", ""))
    return float(found[1].replace(",", "")) if found else None


def _num_images(recipe: Recipe) -> int | None:
    row = describe_one(recipe.data.name)
    return recipe.data.train or (row.num_train if row else None)


def _bytes(recipe: Recipe) -> int:
    """The size of a run's folder: the checkpoint, and a line per sampled step and per epoch."""
    row = describe_one(recipe.data.name)
    classes, channels = (row.num_classes or 10, row.image_shape[0]) if row and row.image_shape else (10, 3)
    steps = recipe.epochs * -(-(_num_images(recipe) or 0) // recipe.batch)
    samples = steps * min(1.0, find_method(recipe.method).passes - 1)
    weights = 4 * _COPIES * models.count_parameters(recipe.model, classes, channels)
    return weights + round(_BYTES_PER_SAMPLE * samples) + _BYTES_PER_EPOCH * recipe.epochs


def _time(hours: float, unknown: int = 0) -> str:
    if unknown and not hours:
        return "?"
    text = f"{3600 * hours:.0f} s" if hours < 1 / 60 else f"{60 * hours:.0f} min" if hours < 1 else f"{hours:,.0f} h"
    if 1 <= hours < 10:
        text = f"{hours:.1f} h"
    return text + (" + ?" if unknown else "")


def _size(num_bytes: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / 1000:,.0f} kB"
