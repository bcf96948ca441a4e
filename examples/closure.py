"""An ordinary training loop with vSAM on a budget: the forward and backward pass move into a closure."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vsam


def main() -> tuple[list[float], vsam.VSAM]:
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    loader = DataLoader(TensorDataset(points, (points[:, 0] * points[:, 1] > 0).long()), batch_size=100, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2))
    criterion = nn.CrossEntropyLoss()
    epochs = 20

    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    optimizer = vsam.VSAM(base, model=model, budget=0.2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader) * epochs)

    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:

            def closure():
                loss = criterion(model(inputs), targets)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
            scheduler.step()
            losses.append(loss.item())

    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"{optimizer.num_samples} second gradients in {len(losses)} steps")
    return losses, optimizer


if __name__ == "__main__":
    main()
