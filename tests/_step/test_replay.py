"""The second pass repeats the first one's draws, and leaves no trace in generators and buffers."""

import copy
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import vsam


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


class LateAverage(nn.Module):
    """A layer with a large average, which it writes to from the second forward pass on and without a trace."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(300, 300)
        self.num_passes = 0
        self.register_buffer("average", torch.zeros(300, 300))

    def forward(self, inputs: Tensor) -> Tensor:
        self.num_passes += 1
        if self.num_passes > 2:
            self.average.data.lerp_(self.linear.weight.detach(), 0.1)
        return self.linear(inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("take_step", [with_closure, without_closure])
def test_a_large_buffer_takes_in_only_the_first_pass_from_whenever_it_is_written_to(
    take_step: Callable[..., None],
) -> None:
    layer = LateAverage()
    model = nn.Sequential(nn.Linear(3, 300), layer)
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), model=model)
    for step in range(3):
        twin = copy.deepcopy(model)
        forward(twin, step)
        take_step(optimizer, model, step)
        assert torch.equal(layer.average, twin[1].average)  # type: ignore[arg-type]
    assert layer.average.any()


@pytest.mark.parametrize("take_step", [with_closure, without_closure])
def test_a_buffer_that_is_registered_later_takes_in_only_the_first_pass(take_step: Callable[..., None]) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), model=model)
    take_step(optimizer, model, 0)
    model[0].register_buffer("count", torch.zeros(2))

    def count(layer: nn.Module, *_: object) -> None:
        layer.count += 1  # type: ignore[operator]

    model[0].register_forward_hook(count)
    for step in (1, 2, 3):
        take_step(optimizer, model, step)
        assert model[0].count.tolist() == [step, step]  # type: ignore[union-attr, operator]


def test_a_replaced_buffer_is_again_the_tensor_that_it_was() -> None:
    layer, seen = Average(is_replaced=True), []
    model = nn.Sequential(nn.Linear(3, 3), layer)
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), model=model)
    layer.register_forward_hook(lambda layer, *_: seen.append((layer.mean, layer.mean.clone())))
    with_closure(optimizer, model, 0)
    (first, value), (second, _) = seen
    assert second is not first is layer.mean
    assert torch.equal(first, value)

    def fail() -> None:
        forward(model, 1)
        layer.mean.fill_(7.0)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        optimizer.step(fail)
    assert layer.mean is first
    assert torch.equal(first, value)


# The global generators of Python, NumPy and torch


@pytest.fixture
def _numpys_own_generator() -> Iterator[None]:
    bits = np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(bits)


def draw() -> list[float]:
    """Draw from every generator, with an odd number of normal draws so that NumPy and Python cache one."""
    numbers = [random.random(), random.gauss(0, 1), float(np.random.rand()), float(np.random.normal())]
    return numbers + torch.randn(3).tolist() + np.random.randint(0, 100, 3).tolist()


def gauss_is_kept_back() -> bool:
    return bool(np.random.get_state(legacy=False)["has_gauss"])


def keep_one_back() -> None:
    random.seed(1)
    random.gauss(0, 1)
    while not gauss_is_kept_back():
        np.random.normal()


def use_what_was_kept_back() -> None:
    keep_one_back()
    np.random.normal()
    assert not gauss_is_kept_back()


def set_a_state_that_keeps_one_back() -> None:
    keep_one_back()
    state = np.random.get_state(legacy=False)
    np.random.rand(1000)
    np.random.set_state(state)
    assert gauss_is_kept_back()


def use_another_kind_that_keeps_one_back() -> None:
    np.random.set_bit_generator(np.random.Philox(5))
    np.random.normal()


BEFORE: dict[str, Callable[[], object]] = {
    "seeded": lambda: (np.random.seed(3), random.seed(3)),
    "one kept back": keep_one_back,
    "none kept back": use_what_was_kept_back,
    "a state set": set_a_state_that_keeps_one_back,
    "another kind": lambda: np.random.set_bit_generator(np.random.PCG64(5)),
    "another kind, one kept back": use_another_kind_that_keeps_one_back,
    "another of the same kind": lambda: np.random.set_bit_generator(np.random.MT19937(5)),
    "past the end of the 624 words": lambda: np.random.rand(700),
}
DRAWS: dict[str, Callable[[], object]] = {
    "all": draw,
    "what NumPy kept back": lambda: np.random.normal(),
    "what Python kept back": lambda: random.gauss(0, 1),
    "as many words as there are": lambda: (np.random.bytes(4 * 624), random.getrandbits(32 * 624)),
    "nothing": lambda: None,
}


@pytest.mark.usefixtures("_numpys_own_generator")
@pytest.mark.parametrize("drawing", DRAWS)
@pytest.mark.parametrize("then", BEFORE)
@pytest.mark.parametrize("first", BEFORE)
def test_both_passes_draw_alike_and_generators_advance_as_with_one(first: str, then: str, drawing: str) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer, draws = vsam.SAM(SGD([weight], lr=0.1)), DRAWS[drawing]
    for prepare in (BEFORE[first], BEFORE[then]):
        prepare()
        start = (random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state())
        expected = [draws(), draw()]
        random.setstate(start[0])
        np.random.set_state(start[1])
        torch.set_rng_state(start[2])
        seen = []

        def closure(seen: list[object] = seen) -> Tensor:
            seen.append(draws())
            loss = weight.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        assert seen == [expected[0]] * 2
        assert draw() == expected[1]


@pytest.mark.usefixtures("_numpys_own_generator")
@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("failing", [1, 2])
def test_a_step_that_fails_gives_its_draws_back(name: str, failing: int) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer, seen = vsam.SAM(SGD([weight], lr=0.1)), []
    BEFORE[name]()

    def closure() -> None:
        seen.append(draw())
        weight.square().sum().backward()
        if len(seen) == failing:
            raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        optimizer.step(closure)
    assert draw() == seen[0]


def test_a_state_that_is_set_anew_before_each_step_gives_the_same_numbers() -> None:
    """Also while another optimizer, whose passes draw nothing, steps in between."""
    weight, drawn = nn.Parameter(torch.ones(2)), []
    one, other = (vsam.SAM(SGD([weight], lr=0.1)) for _ in range(2))

    def closure(draws: bool) -> None:
        if draws:
            drawn.append(np.random.normal())
        weight.square().sum().backward()

    keep_one_back()
    saved = np.random.get_state()
    for _ in range(3):
        np.random.set_state(saved)
        one.step(lambda: closure(True))
        other.step(lambda: closure(False))
    assert drawn == 6 * drawn[:1]
