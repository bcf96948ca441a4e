"""A trained run, read back for commands that inspect it."""

from pathlib import Path
from typing import Any

from vsam.lab.errors import RunError, UserError
from vsam.lab.runs.checkpoint import load_checkpoint

__all__ = ["ADVICE", "checkpoint_of", "checkpoints_in", "read_trained"]

ADVICE = "Retrain the run, or give another one."


def checkpoint_of(run: Path) -> Path:
    """The checkpoint in a run's folder."""
    path = run / "checkpoint.pt"
    if not path.exists():
        raise UserError(f"{run} has no checkpoint.pt: give the folder of a run.")
    return path


def checkpoints_in(path: Path) -> list[Path]:
    """The checkpoint in a run's folder, or those of all runs below it; or a checkpoint itself."""
    if path.is_file():
        return [path]
    found = sorted(path.rglob("checkpoint.pt")) if path.is_dir() and not (path / "checkpoint.pt").exists() else []
    return found or [checkpoint_of(path)]


def read_trained(path: Path) -> dict[str, Any]:
    """A checkpoint with everything needed to build its network: recipe, weights, step."""
    try:
        content = load_checkpoint(path, advice=ADVICE)
    except RunError as error:
        raise UserError(str(error)) from error
    for name, kind in (("recipe", dict), ("model", dict), ("step", int)):
        if not isinstance(content.get(name), kind):
            raise UserError(f"{path} is damaged: it has no {name}. {ADVICE}")
    return content
