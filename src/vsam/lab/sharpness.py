"""Measure how flat the minima of runs are, on their own training images, and draw them."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vsam import sharpness
from vsam.lab import models
from vsam.lab.checkpoint import load_checkpoint
from vsam.lab.data import Batches
from vsam.lab.environment import choose_device
from vsam.lab.errors import RunError, UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.jsonl import read_object
from vsam.lab.recipes.recipe import Recipe, check_recipe
from vsam.lab.train import load_data
from vsam.lab.watch import cross_entropy, stored_batches
from vsam.sharpness import Landscape, Sharpness

__all__ = ["Measured", "Slices", "Trained", "checkpoints_in", "cut", "draw", "names_of", "open_trained", "table"]

_MEASURES = {
    "top_eigenvalues": "top eigenvalue",
    "trace": "trace",
    "batch_ascent": "SAM’s sharpness",
    "ascent": "ascent, all images",
    "worst": "worst in the ball",
    "random": "random directions",
}
_ADVICE = "Retrain the run, or give another one."
_AT_ONCE = 8  # points of a slice that a kill may lose
_NUM_LEVELS = 12

Say = Callable[[str], object]


@dataclass(frozen=True)
class Measured:
    """The sharpness of a run."""

    path: Path
    recipe: Recipe
    step: int
    found: Sharpness

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain types."""
        recipe = self.recipe
        which = {"run": str(self.path.parent), "recipe": recipe.name, "method": recipe.ran, "seed": recipe.seed}
        return {**which, "step": self.step, **self.found.to_dict()}


@dataclass(frozen=True)
class Trained:
    """A checkpoint's network with some of its run's training images, as they are stored."""

    path: Path
    recipe: Recipe
    step: int
    model: nn.Module
    batches: Batches

    def measure(self, **options: Any) -> Measured:
        """Measure as `vsam.sharpness.measure` does."""
        try:
            found = sharpness.measure(self.model, cross_entropy, self.batches, **options)
        except ValueError as error:  # from a setting, or from diverged weights
            raise UserError(f"{self.path.parent}: {error}") from error
        return Measured(self.path, self.recipe, self.step, found)

    def slice(self, folder: Path, to: "Trained | None" = None, **options: Any) -> Landscape:
        """Evaluate the loss as `vsam.sharpness.landscape` does, with the points of earlier calls.

        Args:
            folder: of all points.
            to: another run of the same network, for the line to it.
            options: of `vsam.sharpness.landscape`.
        """
        settings = {name: value for name, value in options.items() if name != "progress"}
        settings |= {"samples": len(self.batches.images), "batch": self.batches.batch_size}
        sums = [hashlib.sha256(one.path.read_bytes()).hexdigest() for one in (self, to) if one is not None]
        name = hashlib.sha256(json.dumps([sums, settings], sort_keys=True).encode()).hexdigest()[:16]
        known = _Points(folder / f"{name}.json")
        other = None if to is None else to.model.state_dict()
        try:
            return sharpness.landscape(self.model, cross_entropy, self.batches, to=other, known=known, **options)
        except ValueError as error:
            raise UserError(f"{self.path.parent}: {error}") from error
        finally:
            known.save()


@dataclass(frozen=True)
class Slices:
    """The loss around runs, by name: on a line, on a plane, and from the first run, at 0, to each other run, at 1."""

    lines: dict[str, Landscape]
    planes: dict[str, Landscape]
    between: dict[str, Landscape]

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain types."""
        return {
            kind: {name: {"axis": one.axes[0].tolist(), "losses": one.losses.tolist()} for name, one in found.items()}
            for kind, found in vars(self).items()
        }


def checkpoints_in(path: Path) -> list[Path]:
    """Return the checkpoint in a run's folder, or those of all runs below it, or a checkpoint itself."""
    if path.is_file():
        return [path]
    own = path / "checkpoint.pt"
    found = [own] if own.exists() else sorted(path.rglob("checkpoint.pt"))
    if not found:
        raise UserError(f"{path} has no checkpoint.pt: give the folder of a run.")
    return found


def open_trained(path: Path, num_samples: int, batch_size: int, data_dir: Path | None, device: str | None) -> Trained:
    """Load the network of a checkpoint and the images to measure it on: the same ones for all runs on the same data.

    Args:
        path: of the checkpoint.
        num_samples: the largest number of images.
        batch_size: of the batches.
        data_dir, device: as for training.
    """
    for name, number in (("--samples", num_samples), ("--batch", batch_size)):
        if number < 1:
            raise UserError(f"{name} must be at least 1, got {number}.")
    try:
        content = load_checkpoint(path, advice=_ADVICE)
    except RunError as error:
        raise UserError(str(error)) from error
    recipe = check_recipe(f"of {path.parent}", content["recipe"])
    if recipe.quantize is not None:
        raise UserError(
            f"{path.parent} is a quantized run, whose loss is piecewise constant in its weights and has no "
            "curvature to measure. Give the full-precision run that it started from."
        )
    chosen = choose_device(device)
    try:
        dataset = load_data(recipe, data_dir, chosen)
        model = models.build(recipe.model, dataset.num_classes, dataset.image_shape[0])
    except (UserError, ValueError) as error:
        if not recipe.use:
            raise
        files = " ".join(f"--use {file}" for file in recipe.use)
        raise UserError(f"{path.parent} was made with {files}. Without: {error}") from error
    try:
        model.load_state_dict(content["model"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"The weights in {path.parent} do not match its {recipe.model}. {_ADVICE}") from error
    batches = stored_batches(dataset, num_samples, batch_size)
    return Trained(path, recipe, content["step"], model.to(chosen), batches)


def names_of(runs: Sequence[Trained]) -> list[str]:
    """Return a short name per run: its method, plus whatever distinguishes it from the others."""
    for form in ("{label}", "{label}, seed {seed}", "{recipe}: {label}, seed {seed}", "{folder}"):
        names = [
            form.format(label=r.recipe.label, seed=r.recipe.seed, recipe=r.recipe.name, folder=r.path.parent)
            for r in runs
        ]
        if len(set(names)) == len(names):
            return names
    return [str(run.path) for run in runs]


def cut(
    runs: Mapping[str, Trained], folder: Path, *, num_points: int, span: float, mode: str, is_between: bool, say: Say
) -> Slices:
    """Evaluate the loss around runs, on axes that they share.

    Args:
        runs: by name, at least one.
        folder: where points are stored.
        num_points: per axis of the planes. Lines have twice as many.
        span: the last position on each axis. The first is its opposite.
        mode: how BatchNorm and dropout behave.
        is_between: whether to evaluate the lines between runs too.
        say: called with the progress.
    """
    if num_points < 3 or num_points % 2 == 0:
        raise UserError(f"--points must be an odd number of at least 3, got {num_points}: the run is in the middle.")
    if not 0 < span < 1e6:
        raise UserError(f"--span must be positive, got {span:g}.")
    (first_name, first), *others = runs.items()
    if is_between:
        _check_same(first, [run for _, run in others])
    make_folder(folder)

    def one(name: str, run: Trained, to: Trained | None = None, **options: Any) -> Landscape:
        def show(stage: str, done: int, total: int) -> None:
            say(f"{name}: point {done} of {total}")

        return run.slice(folder, to, mode=mode, progress=show, **options)

    around: Any = {"span": (-span, span)}
    long = 2 * num_points - 1
    return Slices(
        {name: one(f"{name}: line", run, dimensions=1, num_points=long, **around) for name, run in runs.items()},
        {name: one(f"{name}: plane", run, dimensions=2, num_points=num_points, **around) for name, run in runs.items()},
        {
            name: one(f"{first_name} to {name}", first, run, span=(0.0, 1.0), num_points=long)
            for name, run in (others if is_between else ())
        },
    )


def table(rows: Mapping[str, Measured]) -> tuple[list[list[str]], str]:
    """Return a line of headings, a line per run, and a note on what was measured."""
    lines = [["run", "loss", *_MEASURES.values()]]
    for name, row in rows.items():
        numbers = [_cell(_estimate(row.found, measure)) for measure in _MEASURES]
        lines.append([name, f"{row.found.loss:.4g}", *numbers])
    one = next(iter(rows.values())).found
    how = "evaluation" if one.mode == "eval" else "training"
    units = ", in units of the weights (adaptive)" if one.adaptive else ""
    note = (
        f"On {one.num_samples:,} training images as they are stored, at rho = {one.rho:g}{units}, m = {one.m:g}; "
        f"BatchNorm and dropout as in {how}. * not converged. "
        "A smaller number is not a better network: sharpness predicts generalisation poorly (docs/flatness.md)."
    )
    return lines, note


def draw(rows: Mapping[str, Measured], slices: Slices | None, out: Path) -> list[Path]:
    """Write a page, figures (SVG and PNG) and all numbers (JSON) to a folder, and return the files, the page first."""
    from vsam.lab.report.figures import save, styles_for  # matplotlib takes a second to import
    from vsam.lab.report.page import Panels, Section, Table, render

    make_folder(out)
    lines, note = table(rows)
    styles = styles_for(rows)
    blocks = [Table("Measures", lines, list(rows)), *_figures(rows, slices)]
    section = Section("sharpness", "Measures and figures", blocks=blocks)
    folders = "; ".join(f"{name}: {row.path.parent}" for name, row in rows.items())
    page = render("How flat the minima are", note, folders, [section], styles)
    content: dict[str, Any] = {"runs": {name: row.to_dict() for name, row in rows.items()}}
    content |= {"landscape": slices.to_dict()} if slices is not None else {}
    written = [out / "sharpness.html", out / "sharpness.json"]
    write_atomically(written[0], page)
    write_atomically(written[1], json.dumps(_finite(content), indent=1, allow_nan=False) + "\n")
    panels = [panel for block in blocks if isinstance(block, Panels) for panel in block.panels]
    return [*written, *(path for panel in panels for path in save(panel.figure, out / panel.name))]


class _Points(dict[tuple[int, ...], float]):
    """Losses by position on a grid, stored in a file as they are evaluated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            stored = read_object(path)
        except ValueError:  # damaged: evaluate again
            stored = {}
        super().__init__({tuple(map(int, place.split(","))): float(loss) for place, loss in stored.items()})

    def __setitem__(self, place: tuple[int, ...], loss: float) -> None:
        super().__setitem__(place, loss)
        if len(self) % _AT_ONCE == 0:
            self.save()

    def save(self) -> None:
        """Write all points."""
        if self:
            write_atomically(self.path, json.dumps({",".join(map(str, place)): loss for place, loss in self.items()}))


def _figures(rows: Mapping[str, Measured], slices: Slices | None) -> list[Any]:
    from vsam.lab.report.figures import Curve, bars, contours, curves, styles_for
    from vsam.lab.report.page import Panel, Panels

    styles = styles_for(rows)
    panels = []
    for measure, title in _MEASURES.items():
        known = {name: one for name, row in rows.items() if (one := _estimate(row.found, measure)) is not None}
        if known:
            figure = bars({name: (e.value, e.error, e.converged) for name, e in known.items()}, styles, x=title)
            words = ", ".join(f"{name}: {_cell(one)}" for name, one in known.items())
            panels.append(Panel(f"sharpness-{measure.replace('_', '-')}", title[0].upper() + title[1:], figure, words))
    densities = {name: row.found.density for name, row in rows.items() if row.found.density is not None}
    if densities:
        nodes = torch.cat([one.nodes.reshape(-1) for one in densities.values()])
        low, high = nodes.min().item(), nodes.max().item()
        x = torch.linspace(low, high, 400, dtype=torch.float64)
        width = 0.01 * (high - low) or 1.0
        drawn = [Curve(name, x.numpy(), one.at(x, width).clamp_min(1e-6).numpy()) for name, one in densities.items()]
        figure = curves(drawn, styles, x="eigenvalue", y="density", is_log=True, is_count=False)
        panels.append(Panel("sharpness-density", "Spectral density of the Hessian", figure, ""))
    blocks = [Panels("Sharpness", panels, "Bars: estimates with their errors. Hollow: not converged.")]
    if slices is None:
        return blocks
    around = []
    between = f"From {next(iter(rows))} at 0 to another run at 1"
    for name, title, found in (("lines", "A random direction", slices.lines), ("between", between, slices.between)):
        if found:
            drawn = [Curve(label, one.axes[0].numpy(), one.losses.numpy()) for label, one in found.items()]
            figure = curves(drawn, styles, x="position", y="loss, nats", is_count=False)
            around.append(Panel(f"landscape-{name}", title, figure, ""))
    losses = torch.cat([one.losses[one.losses.isfinite()] for one in slices.planes.values()])
    low, high = max(losses.min().item(), 1e-6), losses.max().item()
    levels = [low * (max(high / low, 1.001)) ** (i / _NUM_LEVELS) for i in range(_NUM_LEVELS + 1)]
    for number, (name, plane) in enumerate(slices.planes.items()):
        figure = contours(plane.axes[0].numpy(), plane.losses.numpy(), levels, unit="loss, nats")
        around.append(Panel(f"landscape-contours-{number}", name, figure, "Contours of the loss on a plane."))
    note = "Random directions are filter-normalised and the same for all runs. Cross: the run. All planes share levels."
    return [*blocks, Panels("The loss around the runs", around, note)]


def _check_same(first: Trained, others: Sequence[Trained]) -> None:
    if not others:
        raise UserError("--between needs at least two runs: it draws the line from the first to each other run.")
    for other in others:
        for what in ("model", "data"):
            if getattr(other.recipe, what) != getattr(first.recipe, what):
                raise UserError(f"--between needs runs with the same {what}: {first.path.parent}, {other.path.parent}.")


def _estimate(found: Sharpness, measure: str) -> Any:
    """Return the estimate of a measure, None if it was not measured, or the first of the eigenvalues."""
    one = getattr(found, measure)
    return one[0] if measure == "top_eigenvalues" and one is not None else one


def _cell(estimate: Any) -> str:
    if estimate is None:
        return "–"
    return f"{estimate.value:.3g} ± {estimate.error:.2g}{'' if estimate.converged else '*'}"


def _finite(thing: Any) -> Any:
    """Return a copy with None for numbers that JSON cannot represent."""
    if isinstance(thing, dict):
        return {name: _finite(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_finite(value) for value in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing
