"""The runs of several recipes in one folder, each read once."""

import logging
from collections.abc import Iterable
from pathlib import Path

from vsam.lab.errors import DamagedError
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.finished import FinishedRun, StoredRun, read_run
from vsam.lab.runs.folder import check_settings, run_path

__all__ = ["RunStore", "sentence"]

_log = logging.getLogger(__name__)


class RunStore:
    """Caches what is in a folder.

    Args:
        out: the folder of all runs.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._found: dict[Path, StoredRun] = {}

    def path(self, recipe: Recipe) -> Path:
        """The folder of a recipe's run."""
        return run_path(self.out, recipe)

    def run(self, recipe: Recipe) -> StoredRun:
        """A recipe's run, as of its first lookup."""
        path = self.path(recipe)
        if path not in self._found:
            found = self._found[path] = read_run(path)
            if found.is_finished and found.problems:
                _log.warning("%s: %s", path, " ".join(found.problems))
        return self._found[path]

    def refresh(self, recipes: Iterable[Recipe]) -> None:
        """Reread runs that were not finished."""
        for recipe in recipes:
            path = self.path(recipe)
            if path in self._found and not self._found[path].is_finished:
                del self._found[path]

    def finished(self, recipes: Iterable[Recipe]) -> list[FinishedRun]:
        """The finished ones among some runs."""
        return [run.finished for run in map(self.run, recipes) if run.is_finished]

    @property
    def damaged(self) -> list[Path]:
        """The folders of finished runs looked up so far that have damaged files besides their summaries."""
        return [path for path, run in self._found.items() if run.is_finished and run.problems]

    def usable(self, recipes: Iterable[Recipe]) -> tuple[list[Recipe], list[str]]:
        """The recipes with usable folders, and one sentence per damaged folder; other settings raise an error."""
        sound, damaged = [], []
        for recipe in recipes:
            try:
                check_settings(self.run(recipe), recipe)
                sound.append(recipe)
            except DamagedError as error:
                damaged.append(sentence(recipe, str(error)))
        return sound, damaged


def sentence(recipe: Recipe, why: str) -> str:
    """Why a run is not finished, with its name."""
    return f"{recipe.label}, seed {recipe.seed}: {why}"
