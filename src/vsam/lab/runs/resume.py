"""A run's checkpoint: saved atomically, and resumed from bit for bit."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from vsam.lab.errors import DamagedError, RunError
from vsam.lab.recipes.recipe import canonical_settings
from vsam.lab.runs.checkpoint import load_checkpoint, save_checkpoint
from vsam.lab.runs.generators import own_generators
from vsam.lab.runs.lines import read_json_lines

if TYPE_CHECKING:
    from vsam.lab.runs.train import Run

__all__ = ["resume", "save"]

_PROGRESS = ("seconds", "best", "skips_in_a_row")


def save(run: "Run") -> None:
    """Write the run's checkpoint; of several processes, the first does."""
    if not run.ranks.is_first:
        return
    run.folder.flush()
    save_checkpoint(
        run.folder.checkpoint,
        {
            "recipe": run.recipe.model_dump(),
            **run.training.state_dict(),
            "step": run.step,
            "progress": {name: getattr(run, name) for name in _PROGRESS},
            "sums": asdict(run.sums),
            "generators": run.generators,
            "lines": run.folder.proofs,
        },
    )


def resume(run: "Run") -> None:
    """Resume from the checkpoint in the run's folder, or start from scratch if there is none."""
    content = run.ranks.from_first(lambda: _read(run))
    if content is None:
        run.folder.rewind(None)
        return
    try:
        _restore(run, content)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        if isinstance(error, RunError):
            raise
        raise DamagedError(
            f"{run.folder.checkpoint} does not fit this run: {error} Delete it, or choose another --out."
        ) from error
    if run.step == run.total_steps:  # killed between the last checkpoint and the summary
        run.finish(run.ranks.from_first(lambda: _last_line(run)))


def _read(run: "Run") -> dict[str, Any] | None:
    if not run.folder.checkpoint.exists():
        return None
    # Each process moves the tensors that the first has read to its own device.
    content = load_checkpoint(run.folder.checkpoint, run.device if run.ranks.size == 1 else "cpu")
    if canonical_settings(content.get("recipe")) != canonical_settings(run.recipe.model_dump()):
        raise DamagedError(
            f"{run.folder.checkpoint} belongs to a run with other settings. Delete it, or choose another --out."
        )
    return content


def _restore(run: "Run", content: dict[str, Any]) -> None:
    run.training.load_state_dict(content)
    run.step = content["step"]
    if not 0 <= run.step <= run.total_steps:
        raise ValueError(f"step {run.step} is not within {run.total_steps}.")
    for name in _PROGRESS:
        setattr(run, name, type(getattr(run, name))(content["progress"][name]))
    run.sums = type(run.sums)(**content["sums"])
    run.generators = {name: content["generators"][name].cpu() for name in run.generators}
    with own_generators(run.generators, run.device):  # fails now if these are not valid states
        pass
    if "lines" in content:
        run.ranks.from_first(lambda: run.folder.rewind(content["lines"]))
    else:
        run.ranks.from_first(lambda: run.folder.rewind_older(run.step, run.epoch))


def _last_line(run: "Run") -> dict[str, Any]:
    lines, _ = read_json_lines(run.folder.path / "metrics.jsonl")
    if not lines or lines[-1]["step"] != run.step:
        path = run.folder.path
        raise DamagedError(f"{path / 'metrics.jsonl'} is incomplete. Delete {path} to retrain the run.")
    return lines[-1]
