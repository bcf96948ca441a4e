"""Are SAM's minima flatter than SGD's? Measure both: python examples/gallery/flat_minimum.py."""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import vsam
from vsam.lab.data import load


def make_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(196, 24), nn.Tanh(), nn.Linear(24, 10))


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


def train(rho: float, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> nn.Module:
    torch.manual_seed(0)
    model = make_network()
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.SAM(base, model=model, rho=rho)  # with rho=0 it is SGD
    for epoch in range(40):
        base.param_groups[0]["lr"] = 0.1 * (1 - epoch / 40)
        for batch in batches:

            def closure(batch=batch):
                loss = loss_of(model, batch)
                loss.backward()
                return loss

            optimizer.step(closure)
    return model


def main(out: str | Path = ".") -> dict[str, vsam.sharpness.Sharpness]:
    data = load("fashion-mini").subset(train=500, test=500)
    images = nn.functional.avg_pool2d(data.train_images / 255 - 0.5, 2)
    batches = list(zip(images.split(50), data.train_labels.split(50), strict=True))

    plt.rcParams["svg.hashsalt"] = "vsam"
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
    found = {}
    for name, rho in (("SGD", 0.0), ("SAM", 0.1)):
        model = train(rho, batches)
        what = ("top_eigenvalues", "ascent")
        found[name] = vsam.sharpness.measure(model, loss_of, batches, rho=0.05, num_eigenvalues=5, what=what)
        eigenvalues = [one.value for one in found[name].top_eigenvalues]
        print(
            f"{name}: loss {found[name].loss:.4f}, largest eigenvalue {eigenvalues[0]:.2f}, ascent {found[name].ascent}"
        )
        line = vsam.sharpness.landscape(model, loss_of, batches, num_points=21)
        left.plot(line.axes[0].tolist(), line.losses.tolist(), label=name)
        right.plot(range(1, 6), eigenvalues, "o-", label=name)
    left.set(xlabel="along a random direction, filters scaled alike", ylabel="training loss", title="a slice")
    right.set(xlabel="number", ylabel="eigenvalue", title="largest eigenvalues of the Hessian")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(Path(out) / "flat_minimum.svg", metadata={"Date": None})
    plt.close(figure)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
