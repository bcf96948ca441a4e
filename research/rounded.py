"""Quantization-aware training: does SAM help more if it perturbs the rounded weights, as SAQ does?

Command: python -m research.rounded --model mobilenet-25 --out benchmarks/results/rounded-mobilenet-25.json
Hardware: one CPU core, half an hour for mobilenet-25 and two hours for resnet20.
Result: docs/methods/lsq.md. A row per seed for SGD, SAM and rounded SAM with each radius, and the fraction of integer
weights that change under SAM's perturbation at the end of the run.

Full-precision training follows the recipe cifar10-small, quantization-aware training cifar10-small-lsq. Finished runs
are kept: rerun the command to resume.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import Parameter

import vsam
from vsam.lab import models
from vsam.lab.data import Batches, Dataset, load
from vsam.lab.environment import describe_environment
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.learner import evaluate
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.quantize import QuantizedLayer, integer_weights, parameter_groups, quantize

__all__ = ["changed_fraction", "main", "perturb_rounded"]

CPU = torch.device("cpu")


def perturb_rounded(model: nn.Module) -> list[Parameter]:
    """Let the forward pass use Q(w) + offset, and return the offsets, which stay zero outside of a perturbation.

    Put them in a group with a learning rate of zero, and the weights in one with `perturb=False`.
    """
    offsets = []
    for layer in [one for one in model.modules() if isinstance(one, QuantizedLayer)]:
        layer.register_parameter("offset", Parameter(torch.zeros_like(layer.weight)))
        rounded = layer.quantized_weight
        layer.quantized_weight = lambda layer=layer, rounded=rounded: rounded() + layer.offset  # type: ignore[misc]
        offsets.append(layer.offset)
    return offsets  # type: ignore[return-value]


def changed_fraction(model: nn.Module, rho: float, inputs: Tensor, labels: Tensor) -> float:
    """Return the fraction of integer weights that change under SAM's perturbation of the weights before rounding."""
    before = {name: codes.clone() for name, (codes, _) in integer_weights(model).items()}
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.0), model=model, rho=rho)
    optimizer.zero_grad()
    F.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.perturb()
    after = integer_weights(model)
    optimizer.zero_grad()  # restores the weights
    changed = sum(int((after[name][0] != codes).sum()) for name, codes in before.items())
    return changed / sum(codes.numel() for codes in before.values())


def train(model: nn.Module, optimizer: Any, recipe: Recipe, data: Dataset, seed: int) -> float:
    """Train with the recipe's length and schedule, and return the test accuracy after the last epoch."""
    batches = Batches.train(data, batch_size=recipe.batch, augment=None, seed=seed)
    rates = [group["lr"] for group in optimizer.param_groups]
    step, steps = 0, recipe.epochs * len(batches)
    for epoch in range(recipe.epochs):
        model.train()
        for inputs, labels, _ in batches.epoch(epoch):

            def closure(inputs: Tensor = inputs, labels: Tensor = labels) -> Tensor:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(inputs), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                return loss

            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            optimizer.step(closure)
            step += 1
    return evaluate(model, Batches.test(data), CPU)[0]


def run(name: str, seed: int, rho: float | None, is_rounded: bool, recipe: Recipe, full: Path) -> dict[str, Any]:
    """Train one quantized network from the seed's full-precision one."""
    data = load("cifar10").subset(train=recipe.data.train, test=recipe.data.test, seed=seed)
    network = models.build(name, 10, 3)
    network.load_state_dict(torch.load(full, weights_only=True))
    model = quantize(network, weight_bits=4, activation_bits=4, first_last_bits=8)
    groups = parameter_groups(model, recipe.weight_decay)
    if is_rounded:
        offsets = perturb_rounded(model)
        quantized = {layer.weight for layer in model.modules() if isinstance(layer, QuantizedLayer)}
        weights, steps = groups
        groups = [
            {**weights, "params": [one for one in weights["params"] if one not in quantized]},
            {**weights, "params": [one for one in weights["params"] if one in quantized], "perturb": False},
            steps,
            {"params": offsets, "lr": 0.0, "weight_decay": 0.0},
        ]
    base = torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum)
    optimizer = base if rho is None else vsam.SAM(base, model=model, rho=rho)
    found: dict[str, Any] = {"accuracy": train(model, optimizer, recipe, data, seed)}
    if rho is not None and not is_rounded:
        inputs, labels, _ = next(Batches.train(data, batch_size=recipe.batch, augment=None, seed=seed).epoch(0))
        found["changed_fraction"] = changed_fraction(model.train(), rho, inputs, labels)
    return found


def full_precision(name: str, seed: int, recipe: Recipe, path: Path) -> None:
    """Train the full-precision network of a seed, if it is missing."""
    if path.exists():
        return
    data = load("cifar10").subset(train=recipe.data.train, test=recipe.data.test, seed=seed)
    torch.manual_seed(seed)
    model = models.build(name, 10, 3)
    base = torch.optim.SGD(model.parameters(), lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    train(model, base, recipe, data, seed)
    torch.save(model.state_dict(), path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mobilenet-25")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="of both trainings, to try the program")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    changes = [f"epochs={given.epochs}"] if given.epochs else []
    recipes = [load_recipe(one, changes=changes) for one in ("cifar10-small", "cifar10-small-lsq")]
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    folder = given.out.with_suffix("")
    make_folder(folder)
    known = {(row["seed"], row["rho"], row["rounded"]) for row in rows}
    for seed in range(given.seeds):
        full = folder / f"full-{seed}.pt"
        full_precision(given.model, seed, recipes[0], full)
        for rho, is_rounded in [(None, False), *((rho, one) for rho in given.rho for one in (False, True))]:
            if (seed, rho, is_rounded) in known:
                continue
            about = {"model": given.model, "seed": seed, "rho": rho, "rounded": is_rounded}
            rows.append({**about, **run(given.model, seed, rho, is_rounded, recipes[1], full)})
            print(rows[-1], flush=True)
            content = {
                "command": f"python -m research.rounded --model {given.model}",
                "environment": describe_environment(CPU),
                "rows": rows,
            }
            write_atomically(given.out, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
