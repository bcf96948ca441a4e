"""The network of a run: built, quantized if the recipe says so, and evaluated."""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from vsam.lab import models
from vsam.lab.data import Batches, Dataset
from vsam.lab.errors import RunError, UserError
from vsam.lab.ranks import ALONE, Ranks
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.checkpoint import load_checkpoint
from vsam.quantize import quantize

__all__ = ["build_model", "count_parameters", "evaluate", "quantized_model"]


_ADVICE = "quantize.checkpoint must be the checkpoint.pt of a full-precision run."


def build_model(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """The recipe's network; a quantized one starts from the weights of a full-precision run."""
    model = models.build(recipe.model, dataset.num_classes, dataset.image_shape[0])
    if recipe.quantize is None:
        return model
    if not recipe.quantize.checkpoint:
        raise UserError(
            f"Quantized training starts from a full-precision run of {recipe.model}: add --set "
            "quantize.checkpoint=RUN/checkpoint.pt, or quantize.checkpoint=none to start from random weights."
        )
    if recipe.quantize.checkpoint != "none":
        try:
            content = load_checkpoint(Path(recipe.quantize.checkpoint), advice=_ADVICE)
        except RunError as error:
            raise UserError(str(error)) from error
        try:
            model.load_state_dict(content["model"])
        except (RuntimeError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"quantize.checkpoint must be the checkpoint.pt of a full-precision run of {recipe.model}, but the "
                f"weights in {recipe.quantize.checkpoint!r} are not those of that network."
            ) from error
    return quantized_model(model, recipe)


def quantized_model(model: nn.Module, recipe: Recipe) -> nn.Module:
    """A quantization-aware copy of the model, as the recipe says."""
    assert recipe.quantize is not None
    try:
        return quantize(model, **recipe.quantize.model_dump(exclude={"checkpoint", "perturb_steps"}))
    except ValueError as error:
        raise UserError(f"quantize.{error}") from error


def count_parameters(model: nn.Module) -> int:
    """The parameters that are trained, without the step sizes of quantized layers."""
    steps = ("weight_step", "activation_step")
    own = (value for name, value in model.named_parameters() if not name.endswith(steps))
    return sum(parameter.numel() for parameter in own if parameter.requires_grad)


@torch.no_grad()
def evaluate(
    model: nn.Module, batches: Batches, device: torch.device, bf16: bool = False, ranks: Ranks = ALONE
) -> tuple[float, float]:
    """Accuracy in percent and mean cross entropy, the same on all processes."""
    model.eval()
    correct, loss, count = 0, 0.0, 0
    for images, labels, _ in batches:
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            logits = ranks.gather(model(images), len(labels))
        loss += float(F.cross_entropy(logits.float(), labels, reduction="sum"))
        correct += int((logits.argmax(1) == labels).sum())
        count += len(labels)
    return 100 * correct / count, loss / count
