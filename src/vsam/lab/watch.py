"""The sharpness of a run while it trains, for `sharpness.jsonl`."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vsam.lab.data import Batches, Dataset
from vsam.lab.recipes.recipe import Recipe
from vsam.sharpness import Estimate, Watch

__all__ = ["MEASURED", "cross_entropy", "make_watch", "observe", "stored_batches"]

MEASURED = ("top_eigenvalue", "ascent", "batch_ascent")
"""The fields of a line, each also with `_error` and `_converged`."""


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return the mean loss without label smoothing, whatever the run is trained with."""
    images, labels, _ = batch
    logits: Tensor = model(images)
    return F.cross_entropy(logits.to(torch.float32), labels)


def stored_batches(dataset: Dataset, num_samples: int, batch_size: int) -> Batches:
    """Return batches of training images as stored. Which ones depends only on the numbers of images."""
    drawn = torch.randperm(len(dataset.train_labels), generator=torch.Generator().manual_seed(0))
    kept = drawn[:num_samples].to(dataset.train_images.device)
    images, labels = dataset.train_images[kept], dataset.train_labels[kept]
    return Batches(images, labels, mean=dataset.mean, std=dataset.std, batch_size=batch_size)


def make_watch(recipe: Recipe, model: nn.Module, dataset: Dataset) -> Watch | None:
    """Return the measurement that the recipe asks for, if any."""
    settings = recipe.sharpness
    if settings is None:
        return None
    return Watch(
        model,
        cross_entropy,
        stored_batches(dataset, settings.samples, settings.batch),
        every=settings.every,
        rho=recipe.rho if settings.rho is None else settings.rho,
        max_iterations=settings.max_iterations,
    )


def observe(watch: Watch, step: int) -> dict[str, Any]:
    """Measure, and return the line. A failed measurement does not stop the run: its line says why it failed."""
    try:
        record = watch.measure(step)
    except (ValueError, RuntimeError) as error:
        return {"step": step, "problem": str(error)}
    numbers: dict[str, Any] = {"step": step, "loss": record.loss}
    for name in MEASURED:
        estimate: Estimate = getattr(record, name)
        found = asdict(estimate)
        numbers |= {name: found["value"], f"{name}_error": found["error"], f"{name}_converged": found["converged"]}
    return numbers
