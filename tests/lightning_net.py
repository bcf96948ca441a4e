"""A small Lightning module, and trainers that say nothing, for the tests of the integration."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import vsam
from vsam.integrations.lightning import SharpnessAwareModule

PACKAGE_WARNINGS = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),  # Lightning's own use of torch
    pytest.mark.filterwarnings("ignore:.*:lightning.fabric.utilities.warnings.PossibleUserWarning"),
]

SILENT: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}

Make = Callable[[torch.optim.Optimizer, nn.Module], torch.optim.Optimizer]


def sam(base: torch.optim.Optimizer, model: nn.Module) -> vsam.SAM:
    return vsam.SAM(base, model=model, rho=0.5)


def short_vsam(base: torch.optim.Optimizer, model: nn.Module) -> vsam.VSAM:
    """One that both samples and skips within few steps."""
    return vsam.VSAM(base, model=model, rho=0.5, window=4, slices=2, start=2)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))


def batches(num_batches: int = 8, size: int = 5) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(8 * size, 4, generator=generator)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    return list(zip(points.split(size), labels.split(size), strict=True))[:num_batches]


def loader(num_batches: int = 8, size: int = 5) -> DataLoader[Any]:
    found = batches(num_batches, size)
    data = TensorDataset(torch.cat([points for points, _ in found]), torch.cat([labels for _, labels in found]))
    return DataLoader(data, batch_size=size)


class Ordinary(LightningModule):
    """A user's module before any change."""

    def __init__(self, make: Make = sam) -> None:
        super().__init__()
        self.network, self.make = network(), make

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        base = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        self.optimizer = self.make(base, self)
        return self.optimizer


class Net(SharpnessAwareModule, Ordinary):
    """And after."""


def trainer(**options: Any) -> Trainer:
    return Trainer(**{**SILENT, "max_epochs": 1, **options})


def fit(module: Any, num_batches: int = 8, size: int = 5, **options: Any) -> Any:
    trainer(**options).fit(module, loader(num_batches, size))
    return module


def by_hand(
    make: Make = sam, micro_batches: int = 1, num_batches: int = 8, autocast: Any = None, scaler: Any = None
) -> tuple[nn.Module, Any]:
    """The same steps in an ordinary loop."""
    model = network()
    optimizer: Any = make(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
    found = batches(num_batches)
    for i in range(0, num_batches, micro_batches):

        def closure(i: int = i) -> Any:
            total: Any = 0.0
            for points, labels in found[i : i + micro_batches]:
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None, cache_enabled=False):
                    loss = nn.functional.cross_entropy(model(points), labels) / micro_batches
                (loss if scaler is None else scaler.scale(loss)).backward()
                total = total + loss.detach()
            return total

        if scaler is None:
            optimizer.step(closure)
        else:
            scaler.step(optimizer, closure)
            scaler.update()
    return model, optimizer


def assert_same(module: nn.Module, other: nn.Module) -> None:
    """To the bit, buffers too."""
    for (name, value), expected in zip(module.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, expected), name
