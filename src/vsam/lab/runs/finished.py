"""The one reader of run folders: intact files are used, problems are reported."""

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from vsam.lab.files import is_too_deep, read_regular
from vsam.lab.recipes.recipe import Recipe, canonical_settings, modern
from vsam.lab.runs.facts import Facts, facts_of
from vsam.lab.runs.lines import Lines, number, read_json, read_json_lines

__all__ = ["FinishedRun", "State", "StoredRun", "read_epochs", "read_run", "read_samples", "read_watched", "sealed"]

State = Literal["new", "unfinished", "finished", "broken"]

_MOST_STEPS = 50_000_000  # far beyond any run, and still fits into memory
_RANGES = {
    "accuracy": (0, 100),
    "best": (0, 100),
    "samples": (0, _MOST_STEPS),
    "skipped": (0, _MOST_STEPS),
    "ais": (1e-6, 1e12),
    "seconds": (0, 1e12),
    "steps": (1, _MOST_STEPS),
    "epochs": (1, _MOST_STEPS),
    "seed": (0, math.inf),
}


class _Flaw(Exception):
    """Why a file cannot be used."""


@dataclass(frozen=True)
class FinishedRun:
    """A run as tables use it once it is finished.

    Args:
        label: the method, plus its variant if it has one.
        method: by its name in recipes.
        seed: of the run.
        path: its folder, as the user named it.
        summary: the content of `summary.json`, with checked numbers; empty for an unfinished run.
        epochs: the intact lines of `metrics.jsonl`.
        recipe: its settings, if this version understands them.
        facts: its size, and what it was for.
        checksums: of its JSON-lines files as written, by name; empty for an older run.
    """

    label: str
    method: str
    seed: int
    path: Path
    summary: dict[str, Any]
    epochs: Lines
    recipe: Recipe | None = None
    facts: Facts = field(default_factory=Facts)
    checksums: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredRun(FinishedRun):
    """The content of a run's folder, whatever its state.

    Args:
        state: `finished` runs are in tables, `unfinished` ones can be resumed, `broken` ones have unusable files, and a
            `new` folder was not started.
        problems: what is wrong, in sentences.
        damage: what is wrong with the settings, so that the run cannot be resumed.
        toml: the text of `config.toml`.
        settings: in plain types.
        steps: of the whole run, 0 if unknown.
    """

    state: State = "broken"
    problems: tuple[str, ...] = ()
    damage: str | None = None
    toml: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    steps: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether its summary is intact."""
        return self.state == "finished"

    @property
    def finished(self) -> FinishedRun:
        """The run as tables use it; it must be finished."""
        assert self.is_finished
        return self

    @property
    def steps_done(self) -> int:
        """Steps up to the last complete epoch; a later checkpoint within an epoch is not opened for this."""
        return self.steps if self.is_finished else int(self.epochs[-1]["step"]) if self.epochs else 0


def read_run(path: Path) -> StoredRun:
    """Read a folder, each file once; never fails: problems are part of the result."""
    try:
        toml, settings = _read_settings(path)
    except _Flaw as flaw:
        is_new = not any(os.path.exists(path / name) for name in ("config.toml", "checkpoint.pt", "summary.json"))
        nothing = StoredRun("", "", 0, path, {}, [], problems=(str(flaw),))
        return replace(nothing, state="new") if is_new else replace(nothing, damage=str(flaw))
    problems: list[str] = []
    recipe = _understand(settings, problems)
    plain = settings if recipe is None else recipe.model_dump()
    label = settings["method"] + (f"-{settings['variant']}" if settings.get("variant") else "")
    run = StoredRun(label, settings["method"], settings["seed"], path, {}, [], recipe, toml=toml, settings=plain)
    try:
        summary, checksums = _read_summary(path / "summary.json", settings)
    except _Flaw as flaw:
        return replace(run, problems=(*problems, str(flaw)), epochs=read_epochs(path)[0])
    return _whole(replace(run, checksums=checksums), settings, summary, problems)


def sealed(summary: Mapping[str, Any], recipe: Recipe, checksums: Mapping[str, str]) -> str:
    """The content of `summary.json`: the summary, the run's settings, its other files' checksums, and last its own."""
    record = {**summary, "settings": recipe.plain(), "checksums": checksums}
    return json.dumps({**record, "checksum": _checksum(record)}, indent=2) + "\n"


def read_epochs(path: Path, checksum: str | None = None) -> tuple[Lines, str | None]:
    """The usable lines of a folder's `metrics.jsonl`, and what is wrong, or None."""
    least = {"epoch": 0, "step": 1, "samples": 0, "seconds": 1e-9}
    lines, reason = read_json_lines(path / "metrics.jsonl", least, checksum)
    return [line if isinstance(line.get("turn"), str) else line | {"turn": None} for line in lines], reason


def read_samples(path: Path, expected: int, checksum: str | None = None) -> tuple[Lines, str | None]:
    """The usable lines of a folder's `steps.jsonl`, of which there should be `expected`; likewise."""
    lines, reason = read_json_lines(path / "steps.jsonl", checksum=checksum)
    if reason and reason.endswith("is missing."):
        return [], "steps.jsonl is missing: this run has no norms and no sampling curve." if expected else None
    if not reason and len(lines) < expected:
        reason = f"steps.jsonl has {len(lines):,} of {expected:,} sampled steps."
    return lines, reason


def read_watched(path: Path, checksum: str | None = None) -> tuple[Lines, str | None]:
    """The usable lines of a folder's `sharpness.jsonl`; likewise. Most runs have none, which is fine."""
    lines, reason = read_json_lines(path / "sharpness.jsonl", checksum=checksum)
    is_missing = reason is not None and reason.endswith("is missing.")
    return lines, None if is_missing and checksum is None else reason


def _whole(run: StoredRun, settings: Mapping[str, Any], summary: dict[str, Any], problems: list[str]) -> StoredRun:
    epochs, reason = read_epochs(run.path, run.checksums.get("metrics.jsonl"))
    problems += [reason] if reason else []
    planned = number(summary.get("epochs") or settings.get("epochs"))
    planned = int(planned) if 0 < planned < math.inf else len(epochs)
    if not summary:
        problems.append(
            f"There is no summary.json: {len(epochs)} of {planned} epochs are done. It is running, was stopped or "
            "failed; rerun its command to resume."
        )
    elif len(epochs) < planned:
        problems.append(f"metrics.jsonl has {len(epochs)} of {planned} epochs: the curves are incomplete.")
    facts = facts_of(settings, summary, run.recipe)
    return replace(
        run,
        state="finished" if summary else "unfinished",
        recipe=run.recipe and run.recipe.model_copy(update={"role": facts.role}),
        problems=tuple(problems),
        label=str(summary.get("label") or run.label),
        steps=int(summary["steps"]) if summary else _planned_steps(epochs, planned),
        summary=summary,
        epochs=epochs,
        facts=facts,
    )


def _read_settings(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        if path.is_dir() and not any(child.name != ".lock" for child in path.iterdir()):
            raise _Flaw("The folder is empty.")
        text = read_regular(path / "config.toml").decode()
        settings = tomllib.loads(text)
    except FileNotFoundError as error:
        raise _Flaw("config.toml is missing, so it is unknown what was run.") from error
    except OSError as error:
        raise _Flaw(f"config.toml cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # the latter for nesting too deep for tomllib
        raise _Flaw(f"config.toml is not valid TOML: {error}.") from error
    if is_too_deep(settings):
        raise _Flaw("config.toml is nested too deeply.")
    needed = [name for name, field in Recipe.model_fields.items() if field.is_required()]
    if missing := [name for name in needed if name not in settings]:
        raise _Flaw(f"config.toml is cut off: it lacks {', '.join(missing)}.")
    method, seed = settings.setdefault("method", "vsam"), settings.setdefault("seed", 0)
    if not isinstance(method, str) or not isinstance(seed, int):
        raise _Flaw(f"config.toml needs a method and a seed, got {method!r} and {seed!r}.")
    return text, settings


def _understand(settings: dict[str, Any], problems: list[str]) -> Recipe | None:
    try:
        return Recipe.model_validate(modern(settings))
    except ValidationError as error:
        keys = ", ".join(".".join(str(part) for part in problem["loc"]) for problem in error.errors())
        problems.append(f"config.toml does not fit this version of vsam ({keys}): settings are shown as written.")
        return None


def _read_summary(path: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The summary, and the checksums of the run's other files; both empty if the run has no summary yet."""
    summary, reason = read_json(path)
    if reason:
        raise _Flaw(reason)
    if summary is None:
        return {}, {}
    checksums = _unseal(summary, settings)
    summary.setdefault("epochs", settings["epochs"])
    summary.setdefault("skipped", 0)
    for name, (least, most) in _RANGES.items():
        if not math.isfinite(number(summary.get(name))):
            raise _Flaw(f"summary.json: {name} must be a finite number, got {summary.get(name)!r:.40}.")
        if not least <= summary[name] <= most:
            raise _Flaw(f"summary.json: {name} must be from {least:,} to {most:,}, got {summary[name]!r:.40}.")
    for name in ("data", "model", "method"):
        if not isinstance(summary.get(name), str):
            raise _Flaw(f"summary.json: {name} must be a string, got {summary.get(name)!r:.40}.")
    if summary["samples"] > summary["steps"]:
        counts = f"{summary['samples']:,} of {summary['steps']:,}"
        raise _Flaw(f"summary.json: samples must not be more than steps, got {counts}.")
    # In older summaries, every sample was a full pass.
    if not 1 <= number(summary.setdefault("price", 1 + summary["samples"] / summary["steps"])) < math.inf:
        raise _Flaw(f"summary.json: price must be a finite number of at least 1, got {summary['price']!r:.40}.")
    for name in ("method", "seed", "epochs"):
        if summary[name] != settings.get(name):
            raise _Flaw(f"summary.json has {name} {summary[name]!r}, but config.toml has {settings.get(name)!r}.")
    return summary, checksums


def _unseal(summary: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Check that the summary is intact and belongs to these settings; removes the proof."""
    checksum = summary.pop("checksum", None)
    if checksum is not None and checksum != _checksum(summary):
        raise _Flaw("summary.json is damaged: its checksum does not match its content.")
    own = summary.pop("settings", None)
    if own is not None and canonical_settings(own) != canonical_settings(settings):
        raise _Flaw("summary.json belongs to a run with settings other than those in config.toml.")
    checksums = summary.pop("checksums", {})
    known = checksums.items() if isinstance(checksums, dict) else ()
    return {name: found for name, found in known if isinstance(found, str)}


def _checksum(record: Mapping[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()}"


def _planned_steps(epochs: Lines, planned: int) -> int:
    """Of an unfinished run, from what an epoch took; 0 if unknown."""
    steps = epochs[-1]["step"] / (epochs[-1]["epoch"] + 1) * planned if epochs else 0
    return round(steps) if steps <= _MOST_STEPS else 0
