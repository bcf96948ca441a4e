"""What is trained: a model, a few batches, and how many steps are taken in a row."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsam.lab import models

__all__ = ["WORKLOADS", "Problem", "Workload"]

NUM_CLASSES = 10
VOCABULARY = 100
NUM_BATCHES = 7  # prime, so that a method that samples every k-th step does not always see the same batches


class Problem:
    """A model with its own batches.

    Args:
        model: in training mode.
        batches: inputs and their classes; cycled through.
    """

    def __init__(self, model: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.model = model
        self._batches = cycle(batches)
        self.next_batch()

    def next_batch(self) -> None:
        """Switch to the next batch; called first in a step, so that all of its passes see the same one."""
        self.inputs, self.targets = next(self._batches)

    def forward_backward(self) -> Tensor:
        """One pass without clearing gradients, as in a closure."""
        loss = functional.cross_entropy(self.model(self.inputs), self.targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def losses(self, keep: Tensor | None = None) -> Tensor:
        """Per-sample losses, or those of `keep`, as ESAM needs them."""
        inputs, targets = (self.inputs, self.targets) if keep is None else (self.inputs[keep], self.targets[keep])
        return functional.cross_entropy(self.model(inputs), targets, reduction="none")


@dataclass(frozen=True)
class Workload:
    """A problem of which every contestant gets a copy.

    Args:
        name: on the command line.
        summary: what it is.
        make_model: builds the network from torch's global generator.
        make_inputs: draws the inputs of a batch.
        burst: steps in a row, of which the first only warms the caches.
    """

    name: str
    summary: str
    make_model: Callable[[], nn.Module]
    make_inputs: Callable[[], Tensor]
    burst: int

    def build(self) -> Problem:
        """The same weights and batches each time; torch's global generator is left unchanged."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.make_model().train()
            inputs = [self.make_inputs() for _ in range(NUM_BATCHES)]
            return Problem(model, [(batch, torch.randint(0, NUM_CLASSES, (len(batch),))) for batch in inputs])


def _mlp(depth: int = 51, width: int = 16) -> nn.Module:
    """A deep narrow network; He initialisation keeps its gradients from becoming subnormal, which is slow."""
    layers: list[nn.Module] = []
    for number in range(depth):
        linear = nn.Linear(width, NUM_CLASSES if number == depth - 1 else width)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class _Transformer(nn.Module):
    """An encoder of token sequences with a linear head on the mean."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of each sequence."""
        logits: Tensor = self.head(self.encoder(self.embedding(tokens)).mean(dim=1))
        return logits


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mlp", "51 linear layers of width 16, batch 8", _mlp, lambda: torch.randn(8, 16), burst=3),
        Workload(
            "transformer",
            "4 encoder layers of width 64, 16 tokens, batch 8",
            _Transformer,
            lambda: torch.randint(0, VOCABULARY, (8, 16)),
            burst=3,
        ),
        Workload(
            "resnet20",
            "ResNet-20, 32×32 images, batch 8",
            lambda: models.build("resnet20", NUM_CLASSES),
            lambda: torch.randn(8, 3, 32, 32),
            burst=2,
        ),
        Workload(
            "resnet18",
            "ResNet-18, 32×32 images, batch 4",
            lambda: models.build("resnet18", NUM_CLASSES),
            lambda: torch.randn(4, 3, 32, 32),
            burst=1,
        ),
    )
}
