"""The page on Lightning does what it shows: both sides of its diffs run, and its snippets."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

import lightning_net as nets
import vsam

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "loops" / "lightning.md").read_text()

pytestmark = [*nets.PACKAGE_WARNINGS, pytest.mark.slow]


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def side(diff: str, sign: str) -> str:
    return "\n".join(line[1:] for line in diff.splitlines() if line[:1] in (sign, " ", ""))


def surroundings() -> dict[str, Any]:
    return {
        "torch": torch,
        "LightningModule": LightningModule,
        "Trainer": nets.trainer,
        "Fabric": Fabric,
        "MulticlassAccuracy": MulticlassAccuracy,
        "make_network": nets.network,
        "loader": nets.loader(),
    }


def moved(network: nn.Module) -> bool:
    pairs = zip(network.parameters(), nets.network().parameters(), strict=True)
    return not any(torch.equal(a, b) for a, b in pairs if a.ndim == 2)  # BatchNorm cancels the bias before it


@pytest.mark.parametrize("diff", blocks("diff"), ids=["automatic", "manual", "fabric"])
def test_both_sides_of_a_diff_train(diff: str) -> None:
    before, after = surroundings(), surroundings()
    exec(side(diff, "-"), before)
    exec(side(diff, "+"), after)
    for names in (before, after):
        assert moved(names["net"].network if "net" in names else names["network"])
    optimizer = after["trainer"].optimizers[0] if "trainer" in after else after["optimizer"]
    steps, samples = (16, 4) if "manual_backward" in diff else (8, 2)
    assert (optimizer.last.step, optimizer.num_samples) == (steps, samples)


def test_esam_and_fabrics_scaler() -> None:
    names = surroundings()
    exec(side(blocks("diff")[0], "+"), names)
    selecting, scaling = blocks("python")
    exec(selecting, names)
    module = nets.fit(names["Selecting"]())
    assert moved(module.network)
    assert module.trainer.optimizers[0].num_samples == 8
    exec(scaling.replace('"cuda"', '"cpu"'), names)
    network = nets.network()
    fabric, base = names["fabric"], torch.optim.SGD(network.parameters(), lr=0.1)
    model, optimizer = fabric.setup(network, vsam.SAM(base, model=network))
    inputs, targets = nets.batches()[0]

    def closure() -> Any:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        fabric.backward(loss)
        return loss

    optimizer.step(closure)
    fabric.backward(nn.functional.cross_entropy(model(inputs), targets))
    assert fabric.strategy.precision.scaler.perturb(optimizer)
    fabric.backward(nn.functional.cross_entropy(model(inputs), targets))
    optimizer.step()
    assert optimizer.num_samples == 2
    assert optimizer.num_skipped == 0
