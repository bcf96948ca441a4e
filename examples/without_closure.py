"""A loop that keeps its own forward and backward: `perturb()` says whether a second pass is needed."""

import torch
from torch import nn

import vsam


def main() -> tuple[list[float], vsam.VSAM]:
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    loader = list(zip(points.split(100), labels.split(100), strict=True))
    model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))
    criterion = nn.CrossEntropyLoss()

    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    optimizer = vsam.VSAM(base, model=model, budget=0.2)

    losses = []
    for _ in range(20):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            if optimizer.perturb():
                criterion(model(inputs), targets).backward()
            optimizer.step()
            losses.append(loss.item())

    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"{optimizer.num_samples} second gradients in {len(losses)} steps")
    return losses, optimizer


if __name__ == "__main__":
    main()
