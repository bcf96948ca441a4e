"""The folder of a run: its settings, its metrics, and the lock that keeps a second process out."""

import json
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vsam.lab.errors import DamagedError, InUseError, RunError, UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.recipes.recipe import Recipe, canonical_settings
from vsam.lab.runs.finished import StoredRun, read_run
from vsam.lab.runs.lines import read_json_lines

__all__ = ["RunFolder", "check_settings", "flat", "run_path"]


def run_path(out: Path, recipe: Recipe) -> Path:
    """Where a run of a recipe lives below `out`; quantized runs of a recipe lie beside the others."""
    bits = recipe.quantize and f"-w{recipe.quantize.weight_bits}a{recipe.quantize.activation_bits}"
    return out / f"{recipe.name}{bits or ''}" / recipe.label / f"seed-{recipe.seed}"


class RunFolder:
    """One run's files. Opening it takes a lock that the system releases even when the process is killed.

    Args:
        path: of the folder; it is created.
        recipe: must be the one that the folder was begun with.

    `summary` is that of a finished run, else None.
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
            found = read_run(path)
            check_settings(found, recipe)
            if found.state == "new":
                write_atomically(path / "config.toml", recipe.to_toml())
        except BaseException:
            self.close()
            raise
        self.summary: dict[str, Any] | None = found.summary or None
        self._waiting: dict[str, list[str]] = {}

    @property
    def checkpoint(self) -> Path:
        """`checkpoint.pt`."""
        return self.path / "checkpoint.pt"

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        if not (self.path / "steps.jsonl").exists():
            write_atomically(self.path / "steps.jsonl", "")
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")
        self.summary = summary

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
                lines, reason = read_json_lines(path)
                if reason and "cannot be read" in reason:
                    raise RunError(f"{self.path}: {reason}")
                write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines if line["step"] <= step))

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()

    def _clear(self) -> None:
        """Remove what killed processes had half written; the lock says that nobody is writing now."""
        for name in ("config.toml", "metrics.jsonl", "steps.jsonl", "checkpoint.pt", "summary.json"):
            for path in self.path.glob(f".{name}.*"):
                path.unlink(missing_ok=True)


def check_settings(run: StoredRun, recipe: Recipe) -> None:
    """Refuse a folder in which a run with other settings was begun, or whose settings are damaged."""
    if run.damage is not None:
        raise DamagedError(
            f"{run.path}: {run.damage} Delete {run.path} to train it again, or choose another folder with --out."
        )
    if run.state == "new":
        return
    begun, wanted = canonical_settings(run.settings), canonical_settings(recipe.model_dump())
    if begun != wanted:
        raise UserError(
            f"{run.path} was begun with other settings ({_difference(begun, wanted)}). "
            "Give those, delete the folder, or choose another with --out."
        )


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted keys."""
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
        return f"{key.removeprefix('use.')} has changed since"
    return f"{key} {old!r} instead of {new!r}"
