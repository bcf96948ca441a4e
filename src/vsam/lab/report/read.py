"""A run's folder as a report needs it: what is whole is used, and what is not is said."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from vsam.lab.comparison.speed import FinishedRun
from vsam.lab.paper.numbers import TRIAL
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.report.curves import Lines, epoch_curves, read_epochs, read_samples, step_curves
from vsam.lab.report.downsample import Buckets, bucket
from vsam.lab.report.lines import one_line, read_json
from vsam.lab.runs.folder import number

__all__ = ["ReadRun", "read_run"]

State = Literal["finished", "unfinished", "broken"]

_NUMBERS = ("accuracy", "best", "samples", "ais", "seconds", "steps", "epochs", "seed")
_WORDS = ("data", "model", "method")
_MOST_STEPS = 50_000_000  # far beyond any run, and still fits into memory
_RANGES = {
    "accuracy": (0, 100),
    "best": (0, 100),
    "samples": (0, _MOST_STEPS),
    "ais": (1e-6, 1e12),
    "seconds": (0, 1e12),
    "steps": (1, _MOST_STEPS),
    "epochs": (1, _MOST_STEPS),
}


class _Broken(Exception):
    """Why a run cannot be used."""


@dataclass(frozen=True)
class ReadRun:
    """What a folder says of its run.

    Args:
        path: the folder, as the user named it.
        state: `finished` runs are in the tables, `unfinished` ones are only drawn, `broken` ones only listed.
        problems: what is wrong, in sentences.
        toml: the text of `config.toml`.
        recipe: its settings, if this version understands them.
        settings: the same in plain types, also if not.
        label: what tables and figures call the run.
        method: by its name in recipes.
        seed: of the run.
        steps: of the whole run, 0 if unknown.
        summary: what `summary.json` holds, with checked numbers; empty for an unfinished run.
        epochs: the whole lines of `metrics.jsonl`.
        curves: the metrics over epochs and over steps, by their keys.
        sampled: which steps were sampled.
    """

    path: Path
    state: State
    problems: tuple[str, ...] = ()
    toml: str = ""
    recipe: Recipe | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    method: str = ""
    seed: int = 0
    steps: int = 0
    summary: dict[str, Any] = field(default_factory=dict)
    epochs: Lines = field(default_factory=list)
    curves: dict[str, Buckets] = field(default_factory=dict)
    sampled: Buckets | None = None

    @property
    def is_validation(self) -> bool:
        """Whether it is a search's trial: its accuracy is on held-out training images, not on the test images."""
        data = self.summary.get("data", "-validation")  # an unfinished run has only its name
        return str(self.settings.get("name")).endswith(TRIAL) and data.endswith("-validation")

    @property
    def cell(self) -> FinishedRun:
        """A finished run as the tables take it."""
        return FinishedRun(self.label, self.method, self.seed, self.path, self.summary, self.epochs)


def read_run(path: Path) -> ReadRun:
    """Read a folder; never fails, for what is wrong is in the result."""
    problems: list[str] = []
    toml = ""
    try:
        if path.is_dir() and not any(child.name != ".lock" for child in path.iterdir()):
            raise _Broken("The folder is empty.")
        toml, settings = _read_settings(path / "config.toml")
        recipe = _understand(settings, problems)
        summary = _read_summary(path / "summary.json", settings)
        return _read_rest(path, problems, toml, settings, recipe, summary)
    except _Broken as reason:
        problems.append(str(reason))
    except OSError as error:
        problems.append(f"The folder cannot be read: {error.strerror}.")
    return ReadRun(path, "broken", tuple(problems), toml)


def _read_settings(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        settings = tomllib.loads(text)
    except FileNotFoundError as error:
        raise _Broken("config.toml is missing, so nobody knows what was run.") from error
    except OSError as error:
        raise _Broken(f"config.toml cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise _Broken(f"config.toml is not valid TOML: {error}.") from error
    method, seed = settings.get("method"), settings.get("seed")
    if not isinstance(method, str) or not isinstance(seed, int):
        raise _Broken(f"config.toml needs a method and a seed, got {method!r} and {seed!r}.")
    return text, settings


def _understand(settings: dict[str, Any], problems: list[str]) -> Recipe | None:
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        keys = ", ".join(".".join(str(part) for part in problem["loc"]) for problem in error.errors())
        problems.append(f"config.toml does not fit this version of vsam ({keys}): settings are shown as they are.")
        return None


def _read_summary(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The summary; empty where the run has none yet."""
    summary, reason = read_json(path)
    if reason:
        raise _Broken(reason)
    if summary is None:
        return {}
    for name in _NUMBERS:
        if not math.isfinite(number(summary.get(name))):
            raise _Broken(f"summary.json: {name} must be a finite number, got {summary.get(name)!r:.40}.")
    for name in _WORDS:
        if not isinstance(summary.get(name), str):
            raise _Broken(f"summary.json: {name} must be a text, got {summary.get(name)!r:.40}.")
    for name, (least, most) in _RANGES.items():
        if not least <= summary[name] <= most:
            raise _Broken(f"summary.json: {name} must be from {least:,} to {most:,}, got {summary[name]!r:.40}.")
    if summary["samples"] > summary["steps"]:
        counts = f"{summary['samples']:,} of {summary['steps']:,}"
        raise _Broken(f"summary.json: samples must not be more than steps, got {counts}.")
    for name in ("method", "seed", "epochs"):
        if summary[name] != settings.get(name):
            raise _Broken(f"summary.json is of {name} {summary[name]!r} and config.toml of {settings.get(name)!r}.")
    return summary


def _read_rest(
    path: Path,
    problems: list[str],
    toml: str,
    settings: dict[str, Any],
    recipe: Recipe | None,
    summary: dict[str, Any],
) -> ReadRun:
    epochs = read_epochs(path, problems)
    planned = _whole(number(summary.get("epochs") or settings.get("epochs"))) or len(epochs)
    if not summary:
        problems.append(
            f"There is no summary.json: {len(epochs)} of {planned} epochs are done. The run goes on, was stopped or "
            "failed; the command that began it continues it."
        )
    elif len(epochs) < planned:
        problems.append(f"metrics.jsonl has {len(epochs)} of {planned} epochs: the curves are incomplete.")
    steps = int(summary["steps"]) if summary else _planned_steps(epochs, planned)
    curves = epoch_curves(epochs, planned, problems)
    sampled = None
    if steps:
        samples = read_samples(path, int(summary.get("samples", 0)), problems)
        positions = [line["step"] for line in samples]
        done = steps if summary else min(steps, max([*positions, epochs[-1]["step"]]))
        curves |= step_curves(samples, steps, int(done), problems)
        sampled = bucket(positions, [1.0] * len(positions), steps)
    method = settings["method"]
    variant = settings.get("variant")
    label = summary.get("label") or (f"{method}-{variant}" if variant else method)
    return ReadRun(
        path=path,
        state="finished" if summary else "unfinished",
        problems=tuple(problems),
        toml=toml,
        recipe=recipe,
        settings=settings if recipe is None else recipe.model_dump(),
        label=one_line(label) or "?",
        method=method,
        seed=settings["seed"],
        steps=steps,
        summary=summary,
        epochs=epochs,
        curves=curves,
        sampled=sampled,
    )


def _whole(value: float) -> int:
    return int(value) if 0 < value < math.inf else 0


def _planned_steps(epochs: Lines, planned: int) -> int:
    """Of an unfinished run, from what an epoch took; 0 if unknown."""
    steps = epochs[-1]["step"] / (epochs[-1]["epoch"] + 1) * planned if epochs else 0
    return round(steps) if steps <= _MOST_STEPS else 0
