"""The folder of a run: its settings, its metrics, and the lock that keeps a second process out."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from vsam.lab.errors import DamagedError, InUseError, UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.ranks import Ranks
from vsam.lab.recipes.recipe import Recipe, canonical_settings
from vsam.lab.runs.finished import StoredRun, read_run, sealed
from vsam.lab.runs.line_file import LineFile
from vsam.lab.runs.lines import read_json_lines

__all__ = ["RunFolder", "check_settings", "flat", "open_folder", "run_path"]

_LINE_FILES = ("metrics.jsonl", "steps.jsonl")
_WATCHED = "sharpness.jsonl"
_log = logging.getLogger(__name__)


def run_path(out: Path, recipe: Recipe) -> Path:
    """The folder of a recipe's run below `out`; quantized runs of a recipe get a folder of their own."""
    bits = recipe.quantize and f"-w{recipe.quantize.weight_bits}a{recipe.quantize.activation_bits}"
    return out / f"{recipe.name}{bits or ''}" / recipe.label / f"seed-{recipe.seed}"


class RunFolder:
    """One run's files. Opening it takes a lock, which the system releases even if the process is killed.

    In a read-only folder, a finished run can still be opened, for reading.

    Args:
        path: of the folder; it is created.
        recipe: must be the one the folder was started with.

    `summary` is that of a run finished earlier, else None, and `problems` says what was wrong with its files.
    """

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path, self._recipe = path, recipe
        names = (*_LINE_FILES, *([_WATCHED] if recipe.sharpness else []))
        self._files = {name: LineFile(path / name) for name in names}
        self._lock = FileLock(path / ".lock", timeout=0)
        try:
            found = self._open()
            check_settings(found, recipe)
            if found.state == "new":
                write_atomically(path / "config.toml", recipe.to_toml())
        except BaseException:
            self.close()
            raise
        if found.state in ("broken", "finished") and found.problems:
            anew = " It will be rewritten at the end." if found.state == "broken" else ""
            _log.warning("%s: %s%s", path, " ".join(found.problems), anew)
        self.summary: dict[str, Any] | None = found.summary or None
        self.problems = found.problems if found.is_finished else ()
        self._checksums = found.checksums if found.is_finished else None

    @property
    def checkpoint(self) -> Path:
        """`checkpoint.pt`."""
        return self.path / "checkpoint.pt"

    @property
    def proofs(self) -> dict[str, dict[str, Any]]:
        """What a checkpoint must record about the JSON-lines files, for `rewind`."""
        return {name: file.proof for name, file in self._files.items()}

    def checksum(self, name: str) -> str | None:
        """Checksum of a JSON-lines file as written; None if unknown."""
        return self._files[name].proof["checksum"] if self._checksums is None else self._checksums.get(name)

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary, which marks the run as finished."""
        for file in self._files.values():
            if not file.path.exists():
                write_atomically(file.path, "")
        checksums = {name: proof["checksum"] for name, proof in self.proofs.items()}
        write_atomically(self.path / "summary.json", sealed(summary, self._recipe, checksums))
        self.summary = summary

    def add_line(self, name: str, line: dict[str, Any]) -> None:
        """Buffer a line for `name` until the next `flush`."""
        self._files[name].add(line)

    def flush(self) -> None:
        """Append buffered lines to their files; what a checkpoint relies on is on disk before the checkpoint is."""
        for file in self._files.values():
            file.flush()

    def rewind(self, proofs: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Drop lines that a killed process wrote after its last checkpoint; all of them if there is none."""
        for name, file in self._files.items():
            file.rewind(None if proofs is None else proofs[name])

    def rewind_older(self, step: int, epochs: int) -> None:
        """The same for a checkpoint without a record of the files: each of `epochs` must have its line."""
        for name, file in self._files.items():
            lines = [line for line in read_json_lines(file.path)[0] if line["step"] <= step]
            if name == "metrics.jsonl" and len(lines) != epochs:
                raise DamagedError(
                    f"{file.path} has {len(lines):,} of {epochs:,} epochs. Delete {self.path} to retrain the run."
                )
            file.keep(lines)

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()

    def _open(self) -> StoredRun:
        try:
            self._take()
        except InUseError:
            raise
        except UserError:
            found = read_run(self.path)
            if not found.is_finished:
                raise
            return found
        self._clear()
        return read_run(self.path)

    def _take(self) -> None:
        """Create the folder and lock it."""
        make_folder(self.path)
        try:
            self._lock.acquire()
        except Timeout as error:
            text = f"{self.path} is in use by another process. Wait for it, or choose another --out."
            raise InUseError(text) from error
        except OSError as error:
            text = f"{self.path} cannot be locked: {error.strerror}. Choose another folder with --out."
            raise UserError(text) from error

    def _clear(self) -> None:
        """Remove what killed processes left half-written; the lock guarantees that no one is writing now."""
        for name in ("config.toml", *_LINE_FILES, _WATCHED, "checkpoint.pt", "summary.json"):
            for path in self.path.glob(f".{name}.*"):
                path.unlink(missing_ok=True)


class FollowedFolder(RunFolder):
    """A run's folder for processes that do not write: it touches no file.

    Args:
        path: of the folder.
        summary: that of a finished run, else None.
    """

    def __init__(self, path: Path, summary: dict[str, Any] | None) -> None:
        self.path, self.summary, self.problems = path, summary, ()

    def finish(self, summary: dict[str, Any]) -> None:
        """Record that the run is finished."""
        self.summary = summary

    def add_line(self, name: str, line: dict[str, Any]) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""

    def rewind(self, proofs: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def open_folder(path: Path, recipe: Recipe, ranks: Ranks) -> RunFolder:
    """The run's folder; of several processes, only the first locks and writes to it."""
    opened: list[RunFolder] = []

    def open_and_tell() -> dict[str, Any] | None:
        opened.append(RunFolder(path, recipe))
        return opened[0].summary

    summary = ranks.from_first(open_and_tell)
    return opened[0] if ranks.is_first else FollowedFolder(path, summary)


def check_settings(run: StoredRun, recipe: Recipe) -> None:
    """Reject a folder that was started with other settings, or whose settings are damaged."""
    if run.damage is not None:
        raise DamagedError(
            f"{run.path}: {run.damage} Delete {run.path} to retrain, or choose another folder with --out."
        )
    if run.state == "new":
        return
    begun, wanted = canonical_settings(run.settings), canonical_settings(recipe.model_dump())
    if begun != wanted:
        raise UserError(
            f"{run.path} was started with other settings ({_difference(begun, wanted)}). "
            "Use those, delete the folder, or choose another with --out."
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
        return f"{key.removeprefix('use.')} has changed"
    return f"{key} {old!r} instead of {new!r}"
