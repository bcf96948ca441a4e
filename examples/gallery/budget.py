"""Choose the cost: the same network with five budgets of second gradients: python examples/gallery/budget.py."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import vsam
from vsam.lab.data import load

BUDGETS = (0.1, 0.2, 0.5, 1.0)
EPOCHS, BATCH, SEEDS = 10, 50, 3


def make_data() -> tuple[torch.Tensor, ...]:
    data = load("fashion-mini").subset(train=600, test=1000).noisy(0.3, seed=0)
    images = [(data.train_images / 255 - 0.5), (data.test_images / 255 - 0.5)]
    return images[0], data.train_labels, images[1], data.test_labels


def make_network() -> nn.Module:
    layers = [nn.Conv2d(1, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2)]
    return nn.Sequential(*layers, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 10))


def train(budget: float, seed: int, data: tuple[torch.Tensor, ...]) -> tuple[float, list[int], float]:
    """Test accuracy, the steps that were sampled, and the passes per step."""
    images, labels, test_images, test_labels = data
    torch.manual_seed(seed)
    model = make_network()
    total_steps = EPOCHS * len(images) // BATCH
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    optimizer = base
    if budget:
        optimizer = vsam.VSAM(base, model=model, budget=budget)
        assert optimizer.expected_cost == 1 + budget
    sampled = []
    for step in range(1, total_steps + 1):
        chosen = torch.randint(len(images), (BATCH,))

        def closure():
            base.zero_grad()
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            return loss

        optimizer.step(closure)
        base.param_groups[0]["lr"] = 0.05 * (1 - step / total_steps)
        if budget and optimizer.last.sampled:
            sampled.append(step)
    with torch.no_grad():
        accuracy = 100 * (model.eval()(test_images).argmax(1) == test_labels).float().mean().item()
    return accuracy, sampled, optimizer.cost if budget else 1.0


def draw(rows: dict[float, tuple[list[float], list[int], float]], path: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "vsam"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    left.eventplot([sampled for _, sampled, _ in rows.values()], colors="C0", linewidths=0.8, linelengths=0.7)
    left.set_yticks(range(len(rows)), ["SGD" if not budget else f"budget {budget:g}" for budget in rows])
    left.set(xlabel="step", title="steps that take the second gradient")
    for accuracies, _, cost in rows.values():
        right.plot([cost] * len(accuracies), accuracies, "o", color="C0", alpha=0.5)
        right.plot(cost, sum(accuracies) / len(accuracies), "_", color="C1", markersize=22, markeredgewidth=3)
    right.set(xlabel="passes per step", ylabel="test accuracy, %", title=f"{SEEDS} seeds (dots) and their mean (bar)")
    right.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(out: str | Path = ".") -> dict[float, tuple[list[float], list[int], float]]:
    data = make_data()
    rows = {}
    for budget in (0.0, *BUDGETS):
        runs = [train(budget, seed, data) for seed in range(SEEDS)]
        accuracies, (_, sampled, cost) = [accuracy for accuracy, _, _ in runs], runs[0]
        rows[budget] = accuracies, sampled, cost
        shown = " ".join(f"{accuracy:.1f}" for accuracy in accuracies)
        print(f"budget {budget:4}: {cost:.2f} passes per step, {len(sampled):3} second gradients, accuracy {shown} %")
    draw(rows, Path(out) / "budget.svg")
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
