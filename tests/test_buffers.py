"""The second pass leaves no trace in the model's buffers."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import vsam
from vsam.buffers import Buffers


class Average(nn.Module):
    """A running average of its own making."""

    def __init__(self, is_replaced: bool) -> None:
        super().__init__()
        self.is_replaced = is_replaced
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("unused", None)

    mean: Tensor
    count: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        if self.is_replaced:
            self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean(0)
            self.count = self.count + 1
        else:
            self.mean.mul_(0.9).add_(inputs.detach().mean(0), alpha=0.1)
            self.count += 1
        return inputs - self.mean


class CodeBook(nn.Module):
    """Large, and written to in a way that torch does not count."""

    codes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("codes", torch.zeros(300, 300))

    def forward(self, inputs: Tensor) -> Tensor:
        self.codes.data.add_(inputs.detach().mean())
        return inputs


class Rows(nn.Module):
    """Makes three channels of a vector and back."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.inner(inputs.unsqueeze(-1).expand(-1, -1, 4) * torch.arange(4.0))
        return result.mean(-1)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.BatchNorm1d(3),
    "batch norm without momentum": lambda: nn.BatchNorm1d(3, momentum=None),
    "instance norm": lambda: Rows(nn.InstanceNorm1d(3, track_running_stats=True)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
    "average in place": lambda: Average(is_replaced=False),
    "average replaced": lambda: Average(is_replaced=True),
    "code book": CodeBook,
}


def network(name: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), LAYERS[name](), nn.Linear(3, 3))


def forward(model: nn.Module, step: int) -> Tensor:
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
    loss: Tensor = (model(inputs) - 1).square().mean()
    return loss


def with_closure(optimizer: vsam.SharpnessAware, model: nn.Module, step: int) -> None:
    def closure() -> Tensor:
        loss = forward(model, step)
        loss.backward()
        return loss

    optimizer.step(closure)


def without_closure(optimizer: vsam.SharpnessAware, model: nn.Module, step: int) -> None:
    optimizer.zero_grad()
    forward(model, step).backward()
    assert optimizer.perturb()
    forward(model, step).backward()
    optimizer.step()


def values_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize("take_step", [with_closure, without_closure])
@pytest.mark.parametrize("name", LAYERS)
def test_buffers_take_in_only_the_first_pass(name: str, take_step: Callable[..., None]) -> None:
    model = network(name)
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), rho=0.5, model=model)
    before = values_of(model)
    for step in range(4):
        twin = copy.deepcopy(model)
        forward(twin, step)
        take_step(optimizer, model, step)
        ours, once = values_of(model), values_of(twin)
        assert all(torch.equal(ours[key], once[key]) for key in once)
    assert any(not torch.equal(ours[key], before[key]) for key in ours)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("failing", [1, 2, 3, 4])
def test_a_step_that_fails_leaves_buffers_as_they_were(name: str, failing: int) -> None:
    """Passes 1 and 2 are those of the very first step."""
    model = network(name)
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), rho=0.5, model=model)
    passes, before = 0, values_of(model)

    def closure() -> Tensor:
        nonlocal passes
        passes += 1
        loss = forward(model, passes)
        if passes == failing:
            raise ValueError("in the middle")
        loss.backward()
        return loss

    if failing > 2:
        optimizer.step(closure)
        before = values_of(model)
    with pytest.raises(ValueError, match="in the middle"):
        optimizer.step(closure)
    after = values_of(model)
    assert passes == failing
    assert all(torch.equal(after[key], before[key]) for key in before)


class Masked(nn.Module):
    """A layer with a causal mask, a buffer that nobody writes to."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("mask", torch.ones(3, 3).tril())

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ (self.linear.weight * self.mask)


def places_of(buffers: Buffers, **options: bool) -> list[str]:
    return [name for _, name, _ in buffers.state(**options).places]


def test_large_buffers_that_nobody_writes_to_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vsam.buffers._SMALL", 0)  # all of these are large then
    model = nn.Sequential(Masked(), Average(is_replaced=False), Average(is_replaced=True), nn.BatchNorm1d(3))
    buffers, norms = Buffers(model), ["running_mean", "running_var", "num_batches_tracked"]
    assert places_of(buffers) == norms
    model(torch.randn(4, 3))
    assert places_of(buffers) == ["mean", "count"] * 2 + norms
    assert places_of(buffers, of_all=True) == ["mask"] + ["mean", "count"] * 2 + norms


def test_only_the_first_second_pass_looks_at_all_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask that was not written to then is not copied again, nor set back."""
    monkeypatch.setattr("vsam.buffers._SMALL", 0)
    layer = Masked()
    buffers = Buffers(layer)
    buffers.before_second_pass()()
    version, restore = layer.mask._version, buffers.before_second_pass()
    restore()
    assert layer.mask._version == version
    restore = Buffers(layer).before_second_pass()
    restore()
    assert layer.mask._version > version


def test_small_buffers_are_copied_without_asking() -> None:
    assert places_of(Buffers(nn.Sequential(Masked()))) == ["mask"]


def test_a_buffer_that_is_registered_later_is_copied() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    buffers = Buffers(model)
    assert places_of(buffers) == []
    model[0].register_buffer("late", torch.ones(2))
    assert places_of(buffers) == ["late"]


def test_a_replaced_buffer_comes_back_as_the_same_tensor() -> None:
    layer = Average(is_replaced=True)
    buffers = Buffers(layer)
    layer(torch.randn(4, 3))
    state, mean = buffers.state(), layer.mean
    kept = mean.clone()
    mean.fill_(7.0)
    layer(torch.randn(4, 3))
    assert layer.mean is not mean
    for _ in range(2):
        state.restore()
        assert layer.mean is mean
        assert torch.equal(mean, kept)


@pytest.mark.parametrize("model", [None, nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)])
def test_without_buffers_there_is_nothing_to_do(model: nn.Module | None) -> None:
    state: Any = Buffers(model).state(of_all=True)
    assert state.places == []
    state.restore()
