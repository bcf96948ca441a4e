"""The slices of a picture: lines and planes for all runs on common axes, and lines between runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsam.lab.errors import UserError
from vsam.lab.files import make_folder
from vsam.lab.flatness.grid import GridFile
from vsam.lab.runs.flatness import Opened
from vsam.sharpness import Landscape

__all__ = ["Slices", "cut"]

Say = Callable[[str], object]


@dataclass(frozen=True)
class Slices:
    """Slices by run name.

    Args:
        lines: one-dimensional, along the same random direction before scaling.
        planes: two-dimensional, likewise.
        between: from the first run, at 0, to each other run, at 1.
    """

    lines: dict[str, Landscape]
    planes: dict[str, Landscape]
    between: dict[str, Landscape]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            kind: {name: {"axis": one.axes[0].tolist(), "losses": one.losses.tolist()} for name, one in found.items()}
            for kind, found in vars(self).items()
        }


def cut(
    runs: dict[str, Opened], folder: Path, *, num_points: int, span: float, mode: str, is_between: bool, say: Say
) -> Slices:
    """Compute the slices of runs; points from earlier calls are read.

    Args:
        runs: by name, at least one.
        folder: where points are stored.
        num_points: per axis; the line has twice as many.
        span: the last position on each axis; the first is its opposite.
        mode: how BatchNorm and dropout behave.
        is_between: whether to compute the lines between runs too.
        say: called with the progress.
    """
    if num_points < 3 or num_points % 2 == 0:
        raise UserError(
            f"--points must be an odd number of at least 3, so that the run is in the middle, got {num_points}."
        )
    if not 0 < span < 1e6:
        raise UserError(f"--span must be positive, got {span:g}.")
    first, *others = runs.items()
    if is_between:
        _check_same(first[1], [run for _, run in others])
    make_folder(folder)
    shared = {"mode": mode, "span": (-span, span)}
    line, plane = ({"dimensions": d, "num_points": p} for d, p in ((1, 2 * num_points - 1), (2, num_points)))
    straight = {"mode": mode, "span": (0.0, 1.0), "num_points": 2 * num_points - 1}
    return Slices(
        {name: _slice(run, folder, {**shared, **line}, f"{name}: line", say) for name, run in runs.items()},
        {name: _slice(run, folder, {**shared, **plane}, f"{name}: plane", say) for name, run in runs.items()},
        {
            name: _slice(first[1], folder, straight, f"{first[0]} to {name}", say, to=run)
            for name, run in (others if is_between else ())
        },
    )


def _slice(
    run: Opened, folder: Path, options: dict[str, Any], name: str, say: Say, to: Opened | None = None
) -> Landscape:
    settings = {"checkpoint": run.checksum, "to": to and to.checksum, **options}
    settings |= {"samples": len(run.batches.images), "batch": run.batches.batch_size}
    known = GridFile(folder, settings)
    try:
        return run.landscape(
            known, to, progress=lambda stage, done, total: say(f"{name}: point {done} of {total}"), **options
        )
    finally:
        known.flush()


def _check_same(first: Opened, others: Sequence[Opened]) -> None:
    if not others:
        raise UserError("--between needs at least two runs: it draws the line from the first to each other run.")
    for other in others:
        if other.recipe.model != first.recipe.model:
            raise UserError(
                f"--between needs runs of the same network: {first.path.parent} is {first.recipe.model}, "
                f"{other.path.parent} is {other.recipe.model}."
            )
        if other.recipe.data != first.recipe.data:
            raise UserError(
                f"--between needs runs on the same images: {first.path.parent} has {first.recipe.data.name}, "
                f"{other.path.parent} has {other.recipe.data.name} with other settings."
            )
