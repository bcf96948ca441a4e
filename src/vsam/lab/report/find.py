"""Finding runs: all run folders at or below the folders that the user named."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from vsam.lab.errors import UserError

__all__ = ["RUN_FILES", "find_runs"]

RUN_FILES = ("config.toml", "metrics.jsonl", "steps.jsonl", "sharpness.jsonl", "checkpoint.pt", "summary.json")


def find_runs(folders: Sequence[Path], say: Callable[[str], object] = lambda text: None) -> list[Path]:
    """The folders of runs, each once and in a stable order; includes empty ones, so that they can be reported.

    Args:
        folders: of runs, or folders that contain them at any depth.
        say: called with the progress at every folder.

    Raises:
        UserError: a path is not a folder, or there is no run at all.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UserError(f"{folder} {what}. Give the folder of a run, or one that contains runs.")
        for path in _search(folder, say):
            found.setdefault(path.resolve(), path)
    if not any(os.path.exists(path / name) for path in found.values() for name in RUN_FILES):
        places = ", ".join(str(folder) for folder in folders) or "no folder"
        raise UserError(f"There is no run in {places}. vsam train and vsam compare create runs below runs/.")
    return list(found.values())


def _search(folder: Path, say: Callable[[str], object]) -> list[Path]:
    found: list[Path] = []
    seen: set[str] = set()  # follow links, but not in cycles
    for name, folders, files in os.walk(
        folder, onerror=lambda error: found.append(Path(error.filename)), followlinks=True
    ):
        if (real := os.path.realpath(name)) in seen:
            folders.clear()
            continue
        seen.add(real)
        say(f"Searching {folder}: {len(seen):,} folders, {len(found):,} runs found")
        folders[:] = sorted(below for below in folders if not below.startswith("."))
        if not set(files).isdisjoint(RUN_FILES):
            folders.clear()
            found.append(Path(name))
        elif not folders and set(files) <= {".lock"} and _looks_like_a_run(Path(name), folder):
            found.append(Path(name))
    return found


def _looks_like_a_run(empty: Path, given: Path) -> bool:
    return empty == given or empty.name.startswith("seed-")
