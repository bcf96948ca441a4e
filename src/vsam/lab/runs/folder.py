"""The folder of a run: its settings, its metrics, and the lock that keeps a second process out."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vsam.lab.errors import DamagedError, InUseError, RunError, UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.recipes.recipe import Recipe, canonical_settings

__all__ = ["RunFolder", "check_settings", "number", "read_lines", "read_settings", "read_summary"]

_NUMBERS = ("accuracy", "best", "samples", "ais", "seconds", "steps", "seed")
_WORDS = ("data", "model", "method")


class RunFolder:
    """One run's files. Opening it takes a lock that the system releases even when the process is killed.

    Args:
        path: of the folder; it is created.
        recipe: must be the one that the folder was begun with.
    """

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        make_folder(path)
        self._lock = FileLock(path / ".lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout as error:
            raise InUseError(f"{path} is in use by another process. Wait for it, or choose another --out.") from error
        except OSError as error:
            raise UserError(f"{path} cannot be locked: {error.strerror}. Choose another folder with --out.") from error
        try:
            self._clear()
            check_settings(path, recipe)
            if not (path / "config.toml").exists():
                write_atomically(path / "config.toml", recipe.to_toml())
        except BaseException:
            self.close()
            raise
        self._waiting: dict[str, list[str]] = {}

    @property
    def checkpoint(self) -> Path:
        """`checkpoint.pt`."""
        return self.path / "checkpoint.pt"

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run, or None."""
        return read_summary(self.path)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        if not (self.path / "steps.jsonl").exists():
            write_atomically(self.path / "steps.jsonl", "")
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def add_line(self, name: str, line: dict[str, Any]) -> None:
        """Keep a line for `name` until the next `flush`."""
        self._waiting.setdefault(name, []).append(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Append the kept lines to their files."""
        for name, lines in self._waiting.items():
            path = self.path / name
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.writelines(lines)
            except OSError as error:
                raise RunError(
                    f"{path} could not be written: {error.strerror}. Make room and run the same command again: it "
                    "goes on from the last checkpoint."
                ) from error
        self._waiting = {}

    def rewind(self, step: int) -> None:
        """Drop lines behind `step`, which a killed process may have written after its last checkpoint."""
        self._waiting = {}
        for name in ("metrics.jsonl", "steps.jsonl"):
            path = self.path / name
            if path.exists():
                lines = [line for line in read_lines(path) if line["step"] <= step]
                write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()

    def _clear(self) -> None:
        """Remove what killed processes had half written; the lock says that nobody is writing now."""
        for name in ("config.toml", "metrics.jsonl", "steps.jsonl", "checkpoint.pt", "summary.json"):
            for path in self.path.glob(f".{name}.*"):
                path.unlink(missing_ok=True)


def check_settings(path: Path, recipe: Recipe) -> None:
    """Refuse a folder in which a run with other settings was begun, or whose settings are damaged."""
    settings = read_settings(path)
    if settings is None:
        return
    begun, wanted = canonical_settings(settings), canonical_settings(recipe.model_dump())
    if begun != wanted:
        raise UserError(
            f"{path} was begun with other settings ({_difference(begun, wanted)}). "
            "Give those, delete the folder, or choose another with --out."
        )


def read_settings(path: Path) -> dict[str, Any] | None:
    """The settings of the run in a folder, or None where none was begun; damaged ones are an error."""
    config, advice = path / "config.toml", f"Delete {path} to train it again, or choose another folder with --out."
    if not config.exists():
        if (path / "checkpoint.pt").exists() or (path / "summary.json").exists():
            raise DamagedError(f"{path} holds a run without its config.toml. {advice}")
        return None
    try:
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last of nesting too deep for tomllib
        raise DamagedError(f"{config} cannot be read: {error}. {advice}") from error
    needed = [name for name, field in Recipe.model_fields.items() if field.is_required()]
    if missing := [name for name in needed if name not in settings]:
        raise DamagedError(f"{config} is cut off: it lacks {', '.join(missing)}. {advice}")
    return settings


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a JSONL file up to the first that is none of a run, e.g. a last one cut off by a kill."""
    lines: list[dict[str, Any]] = []
    if not path.exists():
        return lines
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            content = json.loads(line)
        except json.JSONDecodeError:
            break
        if not isinstance(content, dict) or not isinstance(content.get("step"), int):
            break
        lines.append(content)
    return lines


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary in a run's folder, or None where there is no whole one."""
    try:
        summary: dict[str, Any] = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return summary if isinstance(summary, dict) and _is_possible(summary) else None


def _is_possible(summary: dict[str, Any]) -> bool:
    """Whether a run can have ended so."""
    numbers = {name: number(summary.get(name)) for name in _NUMBERS}
    return (
        all(isinstance(summary.get(name), str) for name in _WORDS)
        and all(math.isfinite(value) for value in numbers.values())
        and numbers["steps"] >= 1
        and 0 <= numbers["samples"] <= numbers["steps"]  # a step takes one second gradient at most
        and 0 <= numbers["accuracy"] <= 100
        and 0 <= numbers["best"] <= 100
        and numbers["seconds"] >= 0
        and numbers["ais"] > 0
    )


def number(value: object) -> float:
    """The value as a number; NaN for everything that is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _difference(begun: dict[str, Any], wanted: dict[str, Any]) -> str:
    old, new = _flat(begun), _flat(wanted)
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return ", ".join(f"{key} {old.get(key)!r} instead of {new.get(key)!r}" for key in keys)


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
