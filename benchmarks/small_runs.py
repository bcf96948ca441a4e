"""Measure vSAM on runs of minutes: `python benchmarks/small_runs.py short|adamw --out FILE.json`. Rerun to resume.

`short` is the fraction of steps that vSAM samples on 1,000 to 10,000 steps, `adamw` SAM and vSAM around AdamW over rho.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import vsam
from vsam.lab.data import Batch, Batches, Dataset, load
from vsam.lab.environment import describe_environment
from vsam.lab.files import write_atomically

__all__ = ["ADAMW", "SHORT", "adamw", "adamw_table", "main", "short", "short_table"]

Settings = dict[str, Any]
SEEDS = (0, 1, 2)
_BATCH = 32
_RULE = {"alpha": 0.2, "window": 20, "start": 40, "initial_samples": 4, "max_rate": 0.35}

_RULES: tuple[Settings, ...] = (
    *({"alpha": alpha} for alpha in (0.1, 0.2, 0.4, 0.8)),
    *({"alpha": alpha, "window": 20} for alpha in (0.1, 0.2)),
    {"alpha": 0.2, "window": 20, "initial_samples": 4, "max_rate": 0.35},
)
SHORT: tuple[Settings, ...] = tuple(
    {"steps": steps, "rule": rule}
    for steps in (1_000, 3_000, 10_000)
    for rule in _RULES
    if steps < 10_000 or rule in ({"alpha": 0.1}, {"alpha": 0.2}, {"alpha": 0.4})
)
ADAMW: tuple[Settings, ...] = (
    *({"method": "adamw", "rho": 0.0, "lr": lr} for lr in (0.001, 0.002, 0.005)),
    *({"method": name, "rho": rho, "lr": 0.001} for name in ("sam", "vsam") for rho in (0.05, 0.1, 0.2)),
    *({"method": "sam", "rho": rho, "lr": 0.002} for rho in (0.02, 0.05, 0.1, 0.2, 0.4)),
    *({"method": name, "rho": rho, "lr": 0.002} for name in ("vsam", "vsam-a") for rho in (0.05, 0.1, 0.2)),
)


def short(settings: Settings, seed: int) -> Settings:
    """Run vSAM around SGD on all 4,000 images that ship with the package, and return the fraction of sampled steps."""

    def optimizer(model: nn.Module) -> vsam.SharpnessAware:
        base = SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        return vsam.VSAM(base, model=model, rho=0.05, seed=seed, **settings["rule"])

    return _train(load("fashion-mini"), (8, 16), optimizer, settings["steps"], seed)


def adamw(settings: Settings, seed: int) -> Settings:
    """Run AdamW alone, or SAM or vSAM around it, on 1,000 images, a fifth mislabelled, and return the test accuracy."""

    def optimizer(model: nn.Module) -> Optimizer:
        base = AdamW(model.parameters(), lr=settings["lr"], weight_decay=0.01)
        if settings["method"] == "adamw":
            return base
        if settings["method"] == "sam":
            return vsam.SAM(base, model=model, rho=settings["rho"])
        gamma = 0.7 if settings["method"] == "vsam" else 0.0
        return vsam.VSAM(base, model=model, rho=settings["rho"], gamma=gamma, seed=seed, **_RULE)

    return _train(load("fashion-mini").subset(train=1_000).noisy(0.2), (16, 32), optimizer, 960, seed)


def _train(
    dataset: Dataset, channels: tuple[int, int], make: Callable[[nn.Module], Optimizer], steps: int, seed: int
) -> Settings:
    torch.manual_seed(seed)
    model = _network(channels)
    optimizer = make(model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    samples, quarters = 0, []
    for step, batch in enumerate(_batches(dataset, steps, seed), start=1):

        def closure(batch: Batch = batch) -> Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch.images), batch.labels)
            loss.backward()
            return loss

        optimizer.step(closure)
        schedule.step()
        samples = getattr(optimizer, "num_samples", 0)
        if step % (steps // 4) == 0:
            quarters.append(samples)
    parts = [(now - before) / (steps // 4) for before, now in zip([0, *quarters], quarters, strict=False)]
    return {"fraction": samples / steps, "fraction_by_quarter": parts, "accuracy": _accuracy(model, dataset)}


def _network(channels: tuple[int, int]) -> nn.Module:
    """Two convolutions with BatchNorm and a linear layer: a few milliseconds per step."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, channels[0]), channels):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * channels[1], 10))


def _batches(dataset: Dataset, steps: int, seed: int) -> Iterator[Batch]:
    batches = Batches.train(dataset, batch_size=_BATCH, seed=seed, augment=None)
    for epoch in range(math.ceil(steps / len(batches))):
        for number, batch in enumerate(batches.epoch(epoch)):
            if epoch * len(batches) + number < steps:
                yield batch


@torch.no_grad()
def _accuracy(model: nn.Module, dataset: Dataset) -> float:
    model.eval()
    correct = sum(int((model(batch.images).argmax(1) == batch.labels).sum()) for batch in Batches.test(dataset))
    return 100 * correct / len(dataset.test_labels)


def short_table(runs: Sequence[Settings]) -> str:
    """Mean fraction over seeds, from the lowest to the highest, for each rule and length."""
    lengths = sorted({run["steps"] for run in runs})
    lines = [f"| rule | {' | '.join(f'{length:,} steps' for length in lengths)} |", "|---|" + "---:|" * len(lengths)]
    for rule in _unique(run["rule"] for run in runs):
        fractions = [
            [run["fraction"] for run in runs if (run["rule"], run["steps"]) == (rule, length)] for length in lengths
        ]
        cells = [f"{statistics.fmean(s):.0%} ({min(s):.0%}–{max(s):.0%})" if s else "–" for s in fractions]
        name = ", ".join(f"{key}={value:g}" for key, value in rule.items())
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def adamw_table(runs: Sequence[Settings]) -> str:
    """Mean accuracy ± standard deviation over seeds, and the fraction of steps sampled, for each method, rho and lr."""
    lines = ["| method | ρ | lr | accuracy % | second gradients | seeds |", "|---|---:|---:|---:|---:|---:|"]
    for method, rho, lr in _unique((run["method"], run["rho"], run["lr"]) for run in runs):
        own = [run for run in runs if (run["method"], run["rho"], run["lr"]) == (method, rho, lr)]
        accuracies = [run["accuracy"] for run in own]
        spread = f" ± {statistics.stdev(accuracies):.2f}" if len(own) > 1 else ""
        rate = statistics.fmean(run["fraction"] for run in own)
        lines.append(
            f"| {method} | {rho:g} | {lr:g} | {statistics.fmean(accuracies):.2f}{spread} | {rate:.0%} | {len(own)} |"
        )
    return "\n".join(lines) + "\n"


def _unique(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def main() -> None:
    """Run what the file does not hold yet, save after every run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("short", "adamw"))
    parser.add_argument("--out", type=Path, required=True, help="the JSON file; finished runs in it are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan, run, table = (SHORT, short, short_table) if options.what == "short" else (ADAMW, adamw, adamw_table)
    content = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {"runs": []}
    for seed in SEEDS:
        for settings in plan:
            known = settings | {"seed": seed}
            if not any(known.items() <= one.items() for one in content["runs"]):
                content["runs"].append(known | run(settings, seed))
                content["environment"] = describe_environment(torch.device("cpu"))
                write_atomically(options.out, json.dumps(content, indent=2) + "\n")
    print(table(content["runs"]))


if __name__ == "__main__":
    main()
