"""The contract table: every method × every base optimizer, and a small run on which each promise is tried."""

import copy
import io
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import vsam
from vsam.selection import Losses

torch.set_num_threads(1)  # more would only wait for each other on tensors this small

__all__ = [
    "ALWAYS",
    "BASES",
    "BATCHES",
    "EXEMPTIONS",
    "LENGTH",
    "LOOPING",
    "METHODS",
    "ORDINARY",
    "Base",
    "Jitter",
    "Run",
    "argument",
    "assert_same",
    "every_case",
    "every_early_looping_method",
    "every_early_ordinary_case",
    "every_early_style",
    "every_looping_method",
    "every_method",
    "every_method_that",
    "every_ordinary_case",
    "every_style",
    "generators",
    "losses_of",
    "network",
    "seed_everything",
    "set_generators",
    "through_a_file",
]

LENGTH = 24
"""Steps of a run: long enough for every method to sample, to skip and, for vSAM, to change its rate."""

_LAW = {"alpha": 0.5, "window": 6, "slices": 3, "start": 12, "initial_samples": 2}

Base = str | Callable[[Any], torch.optim.Optimizer]
"""A base of the table by name, or what makes one of parameters."""

METHODS: dict[str, Callable[..., vsam.SharpnessAware]] = {
    "sam": lambda base, **options: vsam.SAM(base, **options),
    "sam-5": lambda base, **options: vsam.SAM(base, every=5, **options),
    "sam-late": lambda base, **options: vsam.SAM(base, last=0.5, total_steps=LENGTH, **options),
    "asam": lambda base, **options: vsam.ASAM(base, **options),
    "looksam-5": lambda base, **options: vsam.LookSAM(base, every=5, **options),
    "ae-sam": lambda base, **options: vsam.AESAM(base, total_steps=LENGTH, **options),
    "vsam": lambda base, **options: vsam.VSAM(base, watch=3, **_LAW, **options),
    "vsam-released": lambda base, **options: vsam.VSAM(base, variant="released", **_LAW, **options),
    "vsam-a": lambda base, **options: vsam.VSAM(base, gamma=0.0, watch=3, **_LAW, **options),
    "esam": lambda base, **options: vsam.ESAM(base, **options),
    "friendly-sam": lambda base, **options: vsam.FriendlySAM(base, **options),
    "gsam": lambda base, **options: vsam.GSAM(base, **options),
    "wsam": lambda base, **options: vsam.WSAM(base, **options),
    "budget": lambda base, **options: vsam.VSAM(base, budget=0.4, **options),
}

ALWAYS = {"sam", "asam", "esam", "friendly-sam", "gsam", "wsam"}
"""Methods that sample every step."""

EXEMPTIONS: dict[str, dict[str, str]] = {
    "is called 1 + sampled times": {
        "esam": "its losses run three times a step: with gradient, without, and on the subset",
    },
    "repeats the first pass": {
        "esam": "on a subset neither the dropout masks nor the batch statistics can be those of the first pass",
    },
    "samples its first step": {
        "sam-late": "it is its base until the last part of the run, and SAM from there on",
    },
}
"""Promises that a method is exempt from by name, with the reason. All others apply."""

_TAKES_LOSSES = {"esam"}
"""Methods whose `step` takes per-sample losses in place of a closure. They have no `perturb()`."""

LOOPING = [name for name in METHODS if name not in _TAKES_LOSSES]
"""Methods that also run in a loop without a closure."""


def _schedule_free(parameters: Any) -> torch.optim.Optimizer:
    base = pytest.importorskip("schedulefree").AdamWScheduleFree(parameters, lr=0.01, warmup_steps=4)
    base.train()
    return base


def _lion(parameters: Any) -> torch.optim.Optimizer:
    return pytest.importorskip("pytorch_optimizer").Lion(parameters, lr=0.003, weight_decay=0.01)


ORDINARY: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}
BASES = {**ORDINARY, "schedule-free": _schedule_free, "lion": _lion}

_EARLY = [name for name in METHODS if name not in EXEMPTIONS["samples its first step"]]

every_method = pytest.mark.parametrize("method", METHODS)
every_early_looping_method = pytest.mark.parametrize("method", [name for name in LOOPING if name in _EARLY])
every_early_ordinary_case = pytest.mark.parametrize(
    ("method", "base"), [pytest.param(m, b, id=f"{m}-{b}") for m in _EARLY for b in ORDINARY]
)
every_early_style = pytest.mark.parametrize(
    ("method", "style"), [*((one, "closure") for one in _EARLY), *((one, "loop") for one in LOOPING if one in _EARLY)]
)
every_looping_method = pytest.mark.parametrize("method", LOOPING)
every_style = pytest.mark.parametrize(
    ("method", "style"),
    [*((method, "step") for method in METHODS), *((method, "step_without_closure") for method in LOOPING)],
)
every_case = pytest.mark.parametrize(
    ("method", "base"), [pytest.param(m, b, id=f"{m}-{b}") for m in METHODS for b in BASES]
)
every_ordinary_case = pytest.mark.parametrize(
    ("method", "base"), [pytest.param(m, b, id=f"{m}-{b}") for m in METHODS for b in ORDINARY]
)


def every_method_that(promise: str) -> pytest.MarkDecorator:
    """Every method that is not exempt from the promise."""
    return pytest.mark.parametrize("method", [name for name in METHODS if name not in EXEMPTIONS[promise]])


class Jitter(nn.Module):
    """Noise from Python's and NumPy's global generators, beside dropout's from torch's."""

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        return inputs * (1 + 0.1 * random.random() + 0.1 * float(numpy.random.rand()))


def network() -> nn.Sequential:
    """Build a small network with BatchNorm, dropout and draws from all generators, with fixed weights."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(Jitter(), nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def _batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(LENGTH, 8, 5, generator=generator)
    labels = torch.randint(3, (LENGTH, 8), generator=generator)
    return list(zip(inputs, labels, strict=True))


BATCHES = _batches()


def losses_of(model: nn.Module, number: int, keep: Tensor | None = None) -> Tensor:
    """The per-sample losses of a batch of the table, or of its samples `keep`."""
    inputs, labels = BATCHES[number % LENGTH]
    if keep is not None:
        inputs, labels = inputs[keep], labels[keep]
    logits = model(inputs.to(next(model.parameters()).dtype))
    return functional.cross_entropy(logits.float(), labels, reduction="none")


def argument(method: str, losses: Losses) -> Callable[..., Tensor]:
    """Return the argument of the method's `step`: the per-sample losses, or a closure of their mean."""

    def closure() -> Tensor:
        loss = losses().mean()
        loss.backward()
        return loss

    return losses if method in _TAKES_LOSSES else closure


class Run:
    """A network in training by one method on one base, with everything that a step may change.

    `num_calls` counts the forward passes of the closure or losses, `num_passes` those with gradient among them.
    """

    def __init__(self, method: str = "sam", base: Base = "sgd", **options: Any) -> None:
        seed_everything(3)
        self.method = method
        self.model = options.pop("model", None) or network()
        make = BASES[base] if isinstance(base, str) else base
        self.optimizer = METHODS[method](make(self.model.parameters()), model=self.model, **options)
        self.records: list[vsam.StepRecord] = []
        self.num_calls = self.num_passes = 0

    def losses(self, number: int, keep: Tensor | None = None) -> Tensor:
        self.num_calls += 1
        self.num_passes += torch.is_grad_enabled()
        return losses_of(self.model, number, keep)

    def loss(self, number: int) -> Tensor:
        return self.losses(number).mean()

    def closure(
        self, number: int, before: Callable[[], object] | None = None, after: Callable[[], object] | None = None
    ) -> Callable[..., Tensor]:
        """Return the argument of the method's `step`. `before` and `after` run around each forward pass."""

        def losses(keep: Tensor | None = None) -> Tensor:
            if before is not None:
                before()
            values = self.losses(number, keep)
            if after is not None:
                after()
            return values

        return argument(self.method, losses)

    def step(self, number: int) -> Tensor:
        loss = self.optimizer.step(self.closure(number))
        assert self.optimizer.last is not None
        self.records.append(self.optimizer.last)
        return loss

    def go(self, first: int = 0, last: int = LENGTH) -> "Run":
        for number in range(first, last):
            self.step(number)
        return self

    def go_on(self, num_steps: int) -> None:
        """Steps that nobody looks at."""
        for number in range(num_steps):
            self.optimizer.step(self.closure(number))

    def step_without_closure(self, number: int) -> None:
        self.optimizer.zero_grad()
        self.loss(number).backward()
        if self.optimizer.perturb():
            self.loss(number).backward()
        self.optimizer.step()
        assert self.optimizer.last is not None
        self.records.append(self.optimizer.last)

    @property
    def samples(self) -> list[bool]:
        return [record.sampled for record in self.records]

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def everything(self) -> dict[str, Any]:
        """A copy of all that a step may change: weights, buffers, both states, the global generators."""
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        return {"model": copy.deepcopy(model), "optimizer": copy.deepcopy(optimizer), "generators": generators()}


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def trained_by_base_alone(make: Callable[..., torch.optim.Optimizer]) -> nn.Module:
    """The network of the table after its run with a base optimizer and nothing else."""
    seed_everything(3)
    model = network()
    optimizer = make(model.parameters())
    for number in range(LENGTH):
        optimizer.zero_grad()
        losses_of(model, number).mean().backward()
        optimizer.step()
    return model


def generators() -> dict[str, Any]:
    """The states of the global generators."""
    name, words, *rest = numpy.random.get_state()
    return {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": [name, words.tolist(), *rest]}


def set_generators(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    name, words, *rest = states["numpy"]
    numpy.random.set_state((name, numpy.array(words, dtype=numpy.uint32), *rest))


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """The state as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert isinstance(loaded, dict)
    return loaded


def assert_same(left: Any, right: Any, at: str = "it") -> None:
    """Fail, saying where, unless both are equal, tensors bit for bit."""
    if isinstance(left, Tensor):
        assert isinstance(right, Tensor), at
        assert (left.dtype, left.shape) == (right.dtype, right.shape), at
        assert torch.equal(_bits(left), _bits(right)), f"{at} differs in {int((left != right).sum())} places"
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), at
        for name in left:
            assert_same(left[name], right[name], f"{at}[{name!r}]")
    elif isinstance(left, list | tuple) and not all(isinstance(value, int | float) for value in left):
        assert len(left) == len(right), at
        for i, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_same(one, other, f"{at}[{i}]")
    else:
        assert left == right, at


def _bits(values: Tensor) -> Tensor:
    return values.detach().reshape(-1).contiguous().view(torch.uint8)
