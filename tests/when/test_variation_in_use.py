"""Variation receives the optimizer's norms, and its state is in the records."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import vsam
from vsam import Variation

N = 10


class Network(nn.Module):
    """Three tensors whose gradients and curvatures are known: ½ Σ aᵢ‖wᵢ‖²."""

    curvatures = (1.0, 2.0, 5.0)

    def __init__(self) -> None:
        super().__init__()
        self.tensors = nn.ParameterList(torch.full((2,), 1.0 + i, dtype=torch.float64) for i in range(3))

    def forward(self) -> torch.Tensor:
        return sum(a * w.square().sum() / 2 for a, w in zip(self.curvatures, self.tensors, strict=True))


class Listening(Variation):
    """Variation that keeps what it is shown."""

    def observe(self, psf_norm: torch.Tensor, grad_norm: torch.Tensor) -> None:
        self.shown = (float(psf_norm), float(grad_norm))
        super().observe(psf_norm, grad_norm)


@pytest.mark.parametrize("watch", [1, 2, 3, 10, None])
@pytest.mark.parametrize("gives_model", [True, False])
def test_the_optimizer_shows_the_norms_of_the_last_tensors(watch: int | None, gives_model: bool) -> None:
    model = Network()
    order = [2, 0, 1]  # groups in another order than the model's
    groups = [{"params": [model.tensors[i]]} for i in order]
    when = Listening(watch=watch)
    optimizer = vsam.SharpnessAware(
        torch.optim.SGD(groups, lr=0.1), model=model if gives_model else None, when=when, where=vsam.GlobalNorm(0.1)
    )
    g = [a * w.detach().clone() for a, w in zip(model.curvatures, model.tensors, strict=True)]
    total = torch.stack([x.norm() for x in g]).norm()
    psf = [0.1 * a * x / total for a, x in zip(model.curvatures, g, strict=True)]

    def closure() -> torch.Tensor:
        loss = model()
        loss.backward()
        return loss

    optimizer.step(closure)
    ordered = [0, 1, 2] if gives_model else order
    watched = ordered if watch is None else ordered[-watch:]
    expected = [float(torch.stack([xs[i].norm() for i in watched]).norm()) for xs in (psf, g)]
    assert isinstance(optimizer.when, Listening)
    assert optimizer.when.shown == pytest.approx(tuple(expected), rel=1e-9)
    assert not hasattr(when, "shown"), "the optimizer works on its own copy"


def test_frozen_tensors_and_missing_gradients_are_passed_over() -> None:
    model = Network()
    model.tensors[2].requires_grad_(False)
    optimizer = vsam.SharpnessAware(torch.optim.SGD(model.parameters(), lr=0.1), model=model, when=Listening(watch=1))

    def closure() -> torch.Tensor:
        loss = model()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert isinstance(optimizer.when, Listening)
    assert optimizer.when.shown[1] == pytest.approx(2 * 2 * 2**0.5)  # ‖g‖ of the second tensor


def test_the_record_tells_the_law_in_force() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1).double()
    inputs = torch.randn(400, 8, 4, dtype=torch.float64)
    optimizer = vsam.VSAM(
        torch.optim.SGD(model.parameters(), lr=0.01),
        model=model,
        alpha=0.5,
        window=N,
        start=25,
        initial_samples=2,
        seed=1,
    )
    told = []
    for batch in inputs[:100]:

        def closure(batch: torch.Tensor = batch) -> torch.Tensor:
            loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        assert optimizer.last is not None
        told.append((optimizer.last.rate, optimizer.last.s))
    assert told[:25] == [(1, 2)] * 25
    assert told[25:30] == [(0.2, 2)] * 5
    moved = [step for step, ((_, old), (_, new)) in enumerate(pairwise(told), start=2) if old != new]
    assert moved
    assert all(step % N == 1 for step in moved), "a new s is in force from the first step of a window"
    assert all(rate == s / N for rate, s in told[25:])
