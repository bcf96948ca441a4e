"""Read a run's folder: settings, metrics, steps, checkpoint and summary."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from vsam.lab.errors import DamagedError, UserError
from vsam.lab.files import is_too_deep, read_regular
from vsam.lab.jsonl import Lines, number, read_lines, read_object
from vsam.lab.recipes.recipe import Recipe, canonical_settings

__all__ = ["Run", "State", "check_settings", "flat", "read_run", "run_path"]

State = Literal["new", "unfinished", "finished", "broken"]

_MOST_STEPS = 50_000_000  # far beyond any run, and still fits into memory
_METRICS = ("step", "epoch", "samples", "seconds", "test_accuracy")
_RANGES = {
    "accuracy": (0, 100),
    "best": (0, 100),
    "samples": (0, _MOST_STEPS),
    "skipped": (0, _MOST_STEPS),
    "ais": (1e-6, 1e12),
    "cost": (1, 1e6),
    "seconds": (0, 1e12),
    "steps": (1, _MOST_STEPS),
    "epochs": (1, _MOST_STEPS),
    "seed": (0, math.inf),
}


@dataclass(frozen=True)
class Run:
    """The content of a run's folder, as far as it can be used.

    Args:
        path: the folder, as the user named it.
        state: `finished`; `unfinished`, which the same command resumes; `broken`, whose `config.toml` or
            `summary.json` cannot be used; or `new`, not started.
        config: the text of `config.toml`.
        settings: its content in plain types.
        recipe: the settings, or None if this version does not understand them.
        epochs: the lines of `metrics.jsonl`.
        summary: the content of `summary.json`, with checked numbers, empty for an unfinished run.
        problem: sentences on what is wrong with the files above, empty if nothing is.
    """

    path: Path
    state: State = "broken"
    config: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe | None = None
    epochs: Lines = field(default_factory=Lines)
    summary: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def is_finished(self) -> bool:
        """True if the run has its summary."""
        return self.state == "finished"

    @property
    def method(self) -> str:
        """Name in tables: the method's, or without one the base optimizer's, `sgd` or `adamw`."""
        method = self.settings.get("method", "")
        return str(self.settings.get("optimizer", method) if method == "sgd" else method)

    @property
    def label(self) -> str:
        """The row's name in tables: the method and the run's variant, if it has one."""
        return f"{self.method}-{variant}" if (variant := self.settings.get("variant")) else self.method

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.settings.get("seed", 0))

    @property
    def num_epochs(self) -> int:
        """Epochs of the complete run."""
        return int(self.settings.get("epochs", 0))

    @property
    def num_steps(self) -> int:
        """Steps of the complete run, or 0 if no epoch is done."""
        if not self.epochs:
            return int(self.summary.get("steps", 0))
        last = self.epochs[-1]
        steps = last["step"] / (last["epoch"] + 1) * self.num_epochs
        return round(steps) if steps <= _MOST_STEPS else 0

    @property
    def steps_done(self) -> int:
        """Steps up to the last complete epoch. The checkpoint may be ahead."""
        return self.num_steps if self.is_finished else int(self.epochs[-1]["step"]) if self.epochs else 0

    @property
    def is_validation(self) -> bool:
        """True if accuracy was measured on held-out training images."""
        return bool(self.summary.get("split") == "validation" or self.settings.get("role") == "trial")

    @cached_property
    def steps(self) -> Lines:
        """The lines of `steps.jsonl`, one per sampled step, read when they are first used."""
        return read_lines(self.path / "steps.jsonl")

    @cached_property
    def sharpness(self) -> Lines:
        """The lines of `sharpness.jsonl`. Most runs have none."""
        path = self.path / "sharpness.jsonl"
        return read_lines(path) if path.exists() else Lines()

    @property
    def checkpoint(self) -> Path:
        """The path of `checkpoint.pt`."""
        return self.path / "checkpoint.pt"


def read_run(path: Path) -> Run:
    """Read a run's folder. This never fails: `problem` says what is wrong."""
    try:
        config, settings = _read_config(path)
    except (FileNotFoundError, NotADirectoryError):
        is_new = not (path / "checkpoint.pt").exists() and not (path / "summary.json").exists()
        missing = "config.toml is missing, so it is unknown what was run."
        return Run(path, "new" if is_new else "broken", problem=missing)
    except ValueError as error:
        return Run(path, problem=str(error))
    problems, recipe = [], None
    try:
        recipe = Recipe.model_validate(settings)
    except ValidationError as error:
        keys = ", ".join(".".join(str(part) for part in one["loc"]) for one in error.errors())
        problems.append(f"config.toml does not fit this version of vsam ({keys}): settings are shown as written.")
    plain = settings if recipe is None else recipe.model_dump()
    epochs = read_lines(path / "metrics.jsonl", _METRICS)
    try:
        summary = read_object(path / "summary.json")
        _check_summary(summary)
    except ValueError as error:
        return Run(path, "broken", config, plain, recipe, epochs, problem=" ".join([*problems, str(error)]))
    if summary and not epochs.problem and len(epochs) < settings["epochs"]:
        epochs.problem = f"metrics.jsonl has {len(epochs)} of {settings['epochs']} epochs."
    if epochs.problem and (summary or (path / "metrics.jsonl").exists()):
        problems.append(epochs.problem)
    state: State = "finished" if summary else "unfinished"
    return Run(path, state, config, plain, recipe, epochs, summary, " ".join(problems))


def run_path(out: Path, recipe: Recipe) -> Path:
    """Return the folder of a recipe's run below `out`. Quantized runs of a recipe get a folder of their own."""
    bits = recipe.quantize and f"-w{recipe.quantize.weight_bits}a{recipe.quantize.activation_bits}"
    return out / f"{recipe.name}{bits or ''}" / recipe.label / f"seed-{recipe.seed}"


def check_settings(run: Run, recipe: Recipe) -> None:
    """Reject a folder that was started with other settings, or whose settings cannot be used."""
    if run.state == "new":
        return
    if not run.settings:
        raise DamagedError(f"{run.path}: {run.problem} Delete {run.path} to retrain, or choose another --out.")
    begun, wanted = canonical_settings(run.settings), canonical_settings(recipe.model_dump())
    if begun != wanted:
        raise UserError(
            f"{run.path} was started with other settings ({_difference(begun, wanted)}). "
            "Use those, delete the folder, or choose another with --out."
        )


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _difference(begun: dict[str, Any], wanted: dict[str, Any]) -> str:
    old, new = flat(begun), flat(wanted)
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return ", ".join(_changed(key, old.get(key), new.get(key)) for key in keys)


def _changed(key: str, old: object, new: object) -> str:
    if key.startswith("use.") and old and new:
        return f"{key.removeprefix('use.')} has changed"
    return f"{key} {old!r} instead of {new!r}"


def _read_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and content of `config.toml`. A `ValueError` says why they cannot be used."""
    try:
        text = read_regular(path / "config.toml").decode()
        settings = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise ValueError(f"config.toml cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # the latter for nesting too deep for tomllib
        raise ValueError(f"config.toml is not valid TOML: {error}.") from error
    if is_too_deep(settings):
        raise ValueError("config.toml is nested too deeply.")
    needed = {"method": str, "seed": int, "epochs": int, "name": str, "model": str}
    for name, kind in needed.items():
        if not isinstance(settings.get(name), kind):
            raise ValueError(f"config.toml is damaged: {name} is {settings.get(name)!r:.40}.")
    return text, settings


def _check_summary(summary: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if a summary lacks what tables use. One that is empty lacks nothing."""
    for name, (least, most) in _RANGES.items() if summary else ():
        if not least <= number(summary.get(name)) <= most or math.isinf(summary[name]):
            raise ValueError(f"summary.json is damaged: {name} is {summary.get(name)!r:.40}.")
    for name in ("data", "model", "method") if summary else ():
        if not isinstance(summary.get(name), str):
            raise ValueError(f"summary.json is damaged: {name} is {summary.get(name)!r:.40}.")
