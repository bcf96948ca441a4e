"""What a recipe trains, without training it."""

import itertools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vsam.lab.data import Batches
from vsam.lab.methods.build import build_objective, build_optimizer
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.network import build_model
from vsam.lab.runs.train import load_data
from vsam.lab.subject.subject import Subject

__all__ = ["read_recipe_subject"]


def read_recipe_subject(recipe: Recipe, data_dir: Path | None, device: torch.device) -> Subject:
    """The network, the loss and the first batches of a recipe, with only its base optimizer."""
    recipe = recipe.updated(method="sgd")
    dataset = load_data(recipe, data_dir, device)
    model: Any = build_model(recipe, dataset).to(device)
    if recipe.channels_last:
        model = model.to(memory_format=torch.channels_last)
    network: Any = torch.compile(model) if recipe.compile else model
    objective = build_objective(model, recipe, dataset)
    batches = Batches.train(
        dataset,
        batch_size=recipe.batch,
        seed=recipe.seed,
        channels_last=recipe.channels_last,
    )

    def loss(batch: Any) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.bf16):
            logits = network(batch.images)
        return objective(logits, batch, 0)

    model.train()
    # Without the last batch of an epoch, which may be smaller.
    chosen = list(itertools.islice(batches.epoch(0), min(4, max(1, len(batches) - 1))))
    settings = f"lr={recipe.lr:g}"
    if recipe.optimizer == "sgd":
        settings += f", momentum={recipe.momentum:g}"
    kind = "SGD" if recipe.optimizer == "sgd" else "AdamW"
    return Subject(
        recipe.name,
        model,
        loss,
        chosen,
        build_optimizer(model, recipe, recipe.epochs * len(batches)),
        f"base = torch.optim.{kind}(model.parameters(), {settings}, weight_decay={recipe.weight_decay:g})",
        rho=recipe.rho,
        gamma=recipe.budget.gamma,
        total_steps=str(recipe.epochs * len(batches)),
    )
