"""Run folders made up in milliseconds, with numbers that a test knows."""

import bisect
import json
import math
import tomllib
from pathlib import Path

import tomli_w

from vsam.lab.recipes.load import load_recipe
from vsam.lab.report.groups import find_runs, group_runs

# A name that some reader would take for more than a name.
EVIL = "</script><script>alert(1)</script> <b>&amp;</b> $x_1$ %{x} \"'|_"
ENVIRONMENT = {"vsam": "0.1.0", "torch": "2.13.0", "device": "CPU Made Up", "threads": 2, "commit": "abc123"}


def accuracy_at(method: str, seed: int, epoch: int) -> float:
    """Of the made up runs: different for each method, seed and epoch."""
    return round(40 + len(method) + 1.5 * seed + 5 * math.log1p(epoch), 2)


def make_run(
    path: Path,
    method: str = "sam",
    seed: int = 0,
    *,
    recipe: str = "cifar10-small",
    changes: tuple[str, ...] = (),
    epochs: int = 3,
    steps_per_epoch: int = 4,
    every: int | None = None,
    finished: bool = True,
    **summary: object,
) -> Path:
    """A run that samples every so many steps (SGD never), with other values in its summary if wanted."""
    settings = load_recipe(recipe, changes=(f"method={method}", f"seed={seed}", f"epochs={epochs}", *changes))
    every = every or {"sam": 1, "vsam": 3}.get(method, 2)
    total = epochs * steps_per_epoch
    sampled = [] if method == "sgd" else list(range(1, total + 1, every))
    path.mkdir(parents=True)
    (path / "config.toml").write_text(settings.to_toml(), encoding="utf-8")
    lines = [_epoch(method, seed, epoch, steps_per_epoch, sampled) for epoch in range(epochs)]
    write_lines(path / "metrics.jsonl", lines)
    write_lines(path / "steps.jsonl", [_step(step, every, steps_per_epoch) for step in sampled])
    if finished:
        accuracies = [line["test_accuracy"] for line in lines]
        content = {
            "recipe": settings.name,
            "data": settings.data.name,
            "model": settings.model,
            "method": method,
            "label": settings.label,
            "seed": seed,
            "epochs": epochs,
            "steps": total,
            "accuracy": accuracies[-1],
            "best": max(accuracies),
            "samples": len(sampled),
            "cost": 1 + len(sampled) / total,
            "skipped": 0,
            "ais": 1000 / (1 + len(sampled) / total) + seed,
            "seconds": 12.5,
            "environment": ENVIRONMENT,
        }
        (path / "summary.json").write_text(json.dumps(content | summary), encoding="utf-8")
    return path


def make_comparison(folder: Path, methods=("sgd", "sam", "vsam"), seeds=(0, 1), **options) -> Path:
    """Several runs as a comparison leaves them."""
    for method in methods:
        for seed in seeds:
            make_run(folder / method / f"seed-{seed}", method, seed, **options)
    return folder


def read_groups(folder: Path):
    return group_runs(find_runs([folder]))


def rename(run: Path, method: str, recipe: str | None = None) -> None:
    """Give a finished run another method and recipe, as somebody who means harm might."""
    config = tomllib.loads((run / "config.toml").read_text())
    config |= {"method": method} | ({"name": recipe} if recipe else {})
    (run / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"method": method, "label": method}), encoding="utf-8")


def write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _epoch(method: str, seed: int, epoch: int, steps: int, sampled: list[int]) -> dict:
    accuracy = accuracy_at(method, seed, epoch)
    return {
        "epoch": epoch,
        "step": (epoch + 1) * steps,
        "train_loss": 2 / (epoch + 1),
        "train_accuracy": accuracy + 5,
        "test_loss": 2.2 / (epoch + 1),
        "test_accuracy": accuracy,
        "lr": 0.1,
        "samples": bisect.bisect_right(sampled, (epoch + 1) * steps),
        "skipped": 0,
        "rate": 0.5,
        "seconds": 1.0 + 0.01 * seed,
        "ais": 1000.0,
        "turn": f"call-{epoch}",
    }


def _step(step: int, every: int, steps: int) -> dict:
    return {
        "step": step,
        "epoch": (step - 1) // steps,
        "loss": 1.0,
        "rate": 1 / every,
        "grad_norm": 1 + step % 3,
        "psf_norm": 0.5 + step % 2,
        "s": 1.0,
        "change_var": 0.1 if step > 3 else None,
        "change_norm": -0.1 if step > 3 else None,
    }
