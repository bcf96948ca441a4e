"""Measure how flat a minimum is: while training, at its end, and as a slice through the loss."""

import torch
from torch import nn

import vsam


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


def main() -> tuple[list[vsam.sharpness.WatchRecord], vsam.sharpness.Sharpness, vsam.sharpness.Landscape]:
    torch.manual_seed(0)
    points = torch.randn(400, 10)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    batches = list(zip(points.split(100), labels.split(100), strict=True))
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), model=model, rho=0.05)

    watch = vsam.sharpness.Watch(model, loss, batches, every=100)
    optimizer.subscribe(watch)
    for step in range(300):

        def closure(batch=batches[step % 4]):
            value = loss(model, batch)
            value.backward()
            return value

        optimizer.step(closure)
    for record in watch.records:
        print(f"step {record.step}  top eigenvalue {record.top_eigenvalue}  SAM's sharpness {record.batch_ascent}")

    found = vsam.sharpness.measure(model, loss, batches, rho=0.05, num_eigenvalues=3)
    print(found)
    line = vsam.sharpness.landscape(model, loss, batches, num_points=21)
    print("loss along a random direction:", " ".join(f"{value:.2f}" for value in line.losses[::5]))
    return watch.records, found, line


if __name__ == "__main__":
    main()
