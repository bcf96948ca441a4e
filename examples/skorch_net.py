"""A net of skorch with vSAM on a budget: needs `pip install 'vsam[skorch]'`."""

from typing import Any

import torch
from skorch import NeuralNetClassifier
from torch import Tensor, nn

import vsam
from vsam.integrations.skorch import SharpnessAwareNet


class Net(SharpnessAwareNet, NeuralNetClassifier):
    pass


class Module(nn.Module):
    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


def main() -> tuple[list[float], Any]:
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    net = Net(
        Module,
        criterion=nn.CrossEntropyLoss,
        lr=0.05,
        max_epochs=10,
        batch_size=50,
        optimizer=vsam.VSAM,
        optimizer__budget=0.2,
        optimizer__base=torch.optim.SGD,
        optimizer__base__momentum=0.9,
        verbose=0,
    )
    net.fit(points, (points[:, 0] * points[:, 1] > 0).long())
    losses = net.history[:, "train_loss"]
    optimizer = net.optimizer_
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, validation accuracy {net.history[-1, 'valid_acc']:.2f}")
    print(f"{optimizer.num_samples} second gradients in {optimizer.last.step} steps")
    return losses, optimizer


if __name__ == "__main__":
    main()
