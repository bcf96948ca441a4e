"""Gradient accumulation: loop over the micro-batches inside the closure, so that a second pass repeats all of them."""

import torch
from torch import Tensor, nn

import vsam


def train(num_micro_batches: int) -> list[Tensor]:
    """Train on batches of 96, each split into micro-batches of equal size, and return the weights."""
    torch.manual_seed(0)
    points = torch.randn(960, 10, dtype=torch.float64)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2)).double()
    criterion = nn.CrossEntropyLoss()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.VSAM(base, model=model, budget=0.2)

    for _ in range(5):
        for inputs, targets in zip(points.split(96), labels.split(96), strict=True):
            parts = list(zip(inputs.chunk(num_micro_batches), targets.chunk(num_micro_batches), strict=True))

            def closure(parts=parts):
                total = 0.0
                for micro_inputs, micro_targets in parts:
                    loss = criterion(model(micro_inputs), micro_targets) / len(parts)
                    loss.backward()
                    total += loss.detach()
                return total

            optimizer.step(closure)
    return [parameter.detach() for parameter in model.parameters()]


def main() -> float:
    whole, split = train(1), train(4)
    difference = max((a - b).abs().max().item() for a, b in zip(whole, split, strict=True))
    print(f"largest difference between 1 and 4 micro-batches after 50 steps: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
