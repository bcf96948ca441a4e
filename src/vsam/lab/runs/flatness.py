"""How flat the minimum of a run is, on its own training images: measures, and slices through the loss."""

import hashlib
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from vsam import sharpness
from vsam.lab import models
from vsam.lab.data import Batches
from vsam.lab.errors import UserError
from vsam.lab.recipes.recipe import Recipe, check_recipe
from vsam.lab.runs.environment import choose_device
from vsam.lab.runs.train import load_data
from vsam.lab.runs.trained import ADVICE, read_trained
from vsam.lab.runs.watched import cross_entropy, stored_batches

__all__ = ["MeasuredRun", "Opened", "measure_run", "open_trained"]


@dataclass(frozen=True)
class MeasuredRun:
    """A run's sharpness, and which run it is."""

    path: Path
    recipe: str
    method: str
    seed: int
    step: int
    found: sharpness.Sharpness

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        own = {"run": str(self.path.parent), "recipe": self.recipe, "method": self.method, "seed": self.seed}
        return {**own, "step": self.step, **self.found.to_dict()}


@dataclass(frozen=True)
class Opened:
    """A checkpoint's network on some of its run's training images, as they are stored."""

    path: Path
    recipe: Recipe
    step: int
    model: nn.Module
    batches: Batches

    @property
    def checksum(self) -> str:
        """Of the checkpoint, which identifies cached results."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def measure(self, **options: Any) -> MeasuredRun:
        """As `vsam.sharpness.measure`."""
        try:
            found = sharpness.measure(self.model, cross_entropy, self.batches, **options)
        except ValueError as error:  # from a setting, or from diverged weights
            raise UserError(f"{self.path.parent}: {error}") from error
        recipe = self.recipe
        return MeasuredRun(self.path, recipe.name, recipe.method, recipe.seed, self.step, found)

    def landscape(
        self, known: MutableMapping[tuple[int, ...], float], to: "Opened | None" = None, **options: Any
    ) -> sharpness.Landscape:
        """As `vsam.sharpness.landscape`; `to` is another run of the same network."""
        other = None if to is None else to.model.state_dict()
        try:
            return sharpness.landscape(self.model, cross_entropy, self.batches, to=other, known=known, **options)
        except ValueError as error:
            raise UserError(f"{self.path.parent}: {error}") from error


def open_trained(path: Path, num_samples: int, batch_size: int, data_dir: Path | None, device: str | None) -> Opened:
    """Load the network of a checkpoint and the images to measure it on.

    The choice depends only on their number, so runs on the same data are measured on the same images.

    Args:
        path: of the checkpoint.
        num_samples: maximum number of images.
        batch_size: of the batches.
        data_dir, device: as for training.
    """
    for name, number in (("--samples", num_samples), ("--batch", batch_size)):
        if number < 1:
            raise UserError(f"{name} must be at least 1, got {number}.")
    content = read_trained(path)
    recipe = check_recipe(f"of {path.parent}", content["recipe"])
    if recipe.quantize is not None:
        raise UserError(
            f"{path.parent} is a quantized run, whose loss is piecewise constant in its weights and has no "
            "curvature to measure. Give the full-precision run that it started from."
        )
    chosen = choose_device(device)
    dataset = load_data(recipe, data_dir, chosen)
    model = models.build(recipe.model, dataset.num_classes, dataset.image_shape[0])
    try:
        model.load_state_dict(content["model"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"The weights in {path.parent} do not match its {recipe.model}. {ADVICE}") from error
    batches = stored_batches(dataset, num_samples, batch_size)
    return Opened(path, recipe, content["step"], model.to(chosen), batches)


def measure_run(
    path: Path, num_samples: int, batch_size: int, data_dir: Path | None, device: str | None, **options: Any
) -> MeasuredRun:
    """Measure the network of a checkpoint: `open_trained`, with the options of `vsam.sharpness.measure`."""
    return open_trained(path, num_samples, batch_size, data_dir, device).measure(**options)
