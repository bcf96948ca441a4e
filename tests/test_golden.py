"""`variant="released"` matches the authors' program on three small problems, step by step.

Each file of figures holds `loss`, `sampled` and `s` per step, `psf` and `ratio` per sampled step (norms over the last
`config["last"]` tensors), and at the end `total`, `final_abs_sum` of every tensor and `running_mean_sum` of every
running buffer.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vsam

DATA = Path(__file__).parent / "data"
SAMPLES, INPUTS, HIDDEN, CLASSES = 640, 20, 24, 5


def build_problem(seed: int, has_norms: bool) -> tuple[nn.Sequential, Tensor, Tensor]:
    """Build the network and the data. The order of the draws is part of the figures."""
    draws = np.random.RandomState(seed)
    features = draws.randn(SAMPLES, INPUTS)
    scores = features @ draws.randn(INPUTS, CLASSES)
    labels = (scores + 2 * draws.randn(SAMPLES, CLASSES)).argmax(axis=1)
    layers: list[nn.Module] = []
    for width, next_width in ((INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)):
        linear = nn.Linear(width, next_width)
        nn.init.zeros_(linear.bias)
        linear.weight.data = torch.from_numpy(draws.randn(next_width, width) / np.sqrt(width))
        layers.append(linear)
        if next_width == HIDDEN:
            layers += [nn.BatchNorm1d(HIDDEN), nn.Tanh()] if has_norms else [nn.Tanh()]
    return nn.Sequential(*layers).double(), torch.from_numpy(features), torch.from_numpy(labels)


def draw_batches(seed: int, count: int, size: int) -> Iterator[Tensor]:
    draws = np.random.RandomState(seed + 1)
    for _ in range(count):
        yield torch.from_numpy(draws.randint(0, SAMPLES, size))


class Run:
    """One run of the library, recorded like the figures. The gradients are read inside the closure."""

    def __init__(self, config: dict[str, Any], num_steps: int) -> None:
        self.network, features, labels = build_problem(config["seed"], config["bn"])
        base = torch.optim.SGD(self.network.parameters(), lr=config["lr"], momentum=0.9, weight_decay=1e-3)
        self.optimizer = vsam.VSAM(
            base,
            model=self.network,
            start=config["warm"],
            watch=config["last"],
            variant="released",
            **{name: config[name] for name in ("rho", "alpha", "gamma", "window", "slices", "max_rate", "seed")},
        )
        self.last = list(self.network.parameters())[-config["last"] :]
        self.loss: list[float] = []
        self.sampled: list[int] = []
        self.s: list[float] = []
        self.psf: list[float] = []
        self.ratio: list[float] = []
        for batch in draw_batches(config["seed"], num_steps, config["batch"]):
            self.take_step(features[batch], labels[batch])

    def take_step(self, features: Tensor, labels: Tensor) -> None:
        gradients: list[Tensor] = []

        def closure() -> Tensor:
            loss = cross_entropy(self.network(features), labels)
            loss.backward()
            gradients.append(torch.cat([p.grad.flatten().clone() for p in self.last if p.grad is not None]))
            return loss

        self.loss.append(self.optimizer.step(closure).item())
        record = self.optimizer.last
        assert record is not None
        assert record.s is not None
        assert len(gradients) == 1 + record.sampled
        self.sampled.append(int(record.sampled))
        self.s.append(record.s)
        if record.sampled:
            plain, sharp = gradients
            self.psf.append(float((sharp - plain).norm()))
            self.ratio.append(self.psf[-1] / float(plain.norm()))


@pytest.mark.parametrize("name", ["mlp", "mlp_bn", "mlp_short_window"])
def test_the_authors_run_is_reproduced(name: str) -> None:
    figures = json.loads((DATA / f"{name}.json").read_text())
    run = Run(figures["config"], len(figures["loss"]))

    assert run.sampled == figures["sampled"]
    assert run.optimizer.num_samples == figures["total"]
    np.testing.assert_allclose(run.s, figures["s"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(run.loss, figures["loss"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(run.psf, figures["psf"], rtol=1e-5)
    np.testing.assert_allclose(run.ratio, figures["ratio"], rtol=1e-5)

    sums = [parameter.abs().sum().item() for parameter in run.network.parameters()]
    np.testing.assert_allclose(sums, figures["final_abs_sum"], rtol=1e-7, atol=1e-10)
    running = [buffer for key, buffer in run.network.named_buffers() if "running" in key]
    np.testing.assert_allclose([float(b.abs().sum()) for b in running], figures["running_mean_sum"], rtol=1e-7)
