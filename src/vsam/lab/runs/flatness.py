"""How flat the minimum of a run is, on its own training images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsam import sharpness
from vsam.lab import models
from vsam.lab.errors import UserError
from vsam.lab.recipes.recipe import check_recipe
from vsam.lab.runs.environment import choose_device
from vsam.lab.runs.train import load_data
from vsam.lab.runs.trained import ADVICE, read_trained
from vsam.lab.runs.watched import cross_entropy, stored_batches

__all__ = ["MeasuredRun", "measure_run"]


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


def measure_run(
    path: Path, num_samples: int, batch_size: int, data_dir: Path | None, device: str | None, **options: Any
) -> MeasuredRun:
    """Measure the network of a checkpoint on some of its training images, as they are stored.

    Which ones are drawn depends on nothing but their number, so that runs on the same data are measured on the same.

    Args:
        path: of the checkpoint.
        num_samples: how many images, at most.
        batch_size: of the batches.
        data_dir, device: as for training.
        options: of `vsam.sharpness.measure`.
    """
    for name, number in (("--samples", num_samples), ("--batch", batch_size)):
        if number < 1:
            raise UserError(f"{name} must be at least 1, got {number}.")
    content = read_trained(path)
    recipe = check_recipe(f"of {path.parent}", content["recipe"])
    if recipe.quantize is not None:
        raise UserError(
            f"{path.parent} is a quantized run, whose loss is constant between the steps of its weights and has no "
            "curvature to measure. Give the full-precision run that it started from."
        )
    chosen = choose_device(device)
    dataset = load_data(recipe, data_dir, chosen)
    model = models.build(recipe.model, dataset.num_classes, dataset.image_shape[0])
    try:
        model.load_state_dict(content["model"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"{path.parent} holds other weights than those of its {recipe.model}. {ADVICE}") from error
    batches = stored_batches(dataset, num_samples, batch_size)
    try:
        found = sharpness.measure(model.to(chosen), cross_entropy, batches, **options)
    except ValueError as error:  # of a setting, or of weights that have diverged
        raise UserError(f"{path.parent}: {error}") from error
    return MeasuredRun(path, recipe.name, recipe.method, recipe.seed, content["step"], found)
