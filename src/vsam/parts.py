"""The three questions: when to sample, where, and what to do in between.

To write a part, subclass `DecidesBefore`, `DecidesAfter`, `Where` or `Between`, store the settings as attributes
named like the constructor's arguments, and return whatever changes during training from `state_dict()`.
"""

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

from vsam.records import Sample

__all__ = [
    "Between",
    "DecidesAfter",
    "DecidesBefore",
    "KnowsBefore",
    "Part",
    "When",
    "Where",
    "generator_from",
    "generator_state",
]


class Part(ABC):
    """A named choice with settings, a state and a sentence that says what it does."""

    generator: random.Random | None = None
    """The part's own generator, if it draws: the optimizer rewinds it when a step fails."""

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({listed})"

    @abstractmethod
    def describe(self) -> str:
        """What this part does, as the end of a sentence."""

    def state_dict(self) -> dict[str, Any]:
        """What changes during training, in plain types."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""


class When(Part):
    """Is the second gradient taken at this step?"""

    decides_after = False
    """Whether the decision needs the first gradient."""

    watch: int | None = 0
    """How many of the last tensors `observe` wants norms of: 0 for none, None for all."""

    @property
    @abstractmethod
    def rate(self) -> float | None:
        """The fraction of steps sampled under the current rule; None for the fraction so far."""

    @property
    def expected_rate(self) -> float | None:
        """The fraction of a run's steps that the settings promise to sample; None if not known in advance."""
        return None

    def observe(self, sample: Sample) -> None:
        """Record a sample. Reading its numbers here would cost a device sync."""

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        """Note that a step has ended. Apart from draws, nothing else may change the state."""

    def details(self) -> dict[str, float | None]:
        """More fields for the step's record."""
        return {}


class DecidesBefore(When):
    """Decides before the first gradient, so a distributed run can skip what it will not need."""

    @abstractmethod
    def wants_sample(self, step: int) -> bool:
        """Whether to sample at this step, counted from 1."""


class DecidesAfter(When):
    """Decides on the first gradient's norm, which must be the same on all ranks and costs one device sync per step."""

    decides_after = True

    @abstractmethod
    def wants_sample(self, step: int, grad_norm: float) -> bool:
        """Whether to sample at this step, given ‖g‖. Called again if the step fails: change state in `advance` only."""


class Where(Part):
    """At which point is the second gradient taken?"""

    rho: float

    only: Literal["norm"] | None = None
    """Which parameters are perturbed and enter the norm, "norm" for those of normalisation layers, None for all."""

    knows_before: bool = False
    """Whether the offset is known before the only pass."""

    keeps_memory: bool = False
    """Whether `directions` and `follow_` are called, which costs one parameter-sized buffer."""

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments by name, without `only` if it is None."""
        return {name: value for name, value in super().settings().items() if name != "only" or value is not None}

    @abstractmethod
    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """Move the weights to w + e in place, and leave the gradients alone.

        `rhos` holds one radius per tensor, `norm` is ‖g‖ over all of them.
        """

    def directions(self, gradients: list[Tensor], memory: list[Tensor]) -> list[Tensor]:
        """What `perturb_` gets instead of the gradients, as new tensors, given their memory before this step."""
        raise NotImplementedError

    def follow_(self, memory: list[Tensor], gradients: list[Tensor]) -> None:
        """Update the memory in place with a step's first gradients. A new parameter's memory is its gradient."""
        raise NotImplementedError


class KnowsBefore(Where):
    """Knows its offset before the only pass: a sampled step is one pass at w + e, and returns the loss there."""

    knows_before = True

    share: float = 0.0
    """The share of the batch whose gradient gives the offset, in a pass before the full one; 0 for none."""

    def check_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Raise if the base optimizer's parameter groups lack what this part needs."""

    @abstractmethod
    def direction(self, state: Mapping[str, Any], gradient: Tensor | None) -> Tensor | None:
        """What `perturb_` gets for a parameter instead of a gradient.

        `state` is the base optimizer's state of that parameter, `gradient` that on the share of the batch, if any.
        """


class Between(Part):
    """What gradient is used, and what is remembered for the steps that are not sampled?"""

    where: KnowsBefore | None = None
    """Where the only gradient of a step that is not sampled is taken; None for w itself."""

    uses_norm: bool = False
    """Whether `reuse_` looks at ‖g‖."""

    keeps_memory: bool = False
    """Whether `remember` is called, which costs one parameter-sized buffer."""

    changes_sample: bool = False
    """Whether `combine_` is called, which costs a transient copy of the gradient at a sample."""

    def remember(self, psf: list[Tensor], sharp: list[Tensor], grad_norm: Tensor) -> None:
        """Turn the PSF into the memory in place, given the sharp gradients and ‖g‖. Default: keep the PSF."""

    def combine_(self, sharp: list[Tensor], psf: list[Tensor]) -> None:
        """Change the sharp gradients of a sample in place to what the base optimizer gets; they are gs = g + PSF.

        A part that also keeps a memory gets what `remember` made of the PSF.
        """
        raise NotImplementedError

    @abstractmethod
    def reuse_(self, gradients: list[Tensor], memory: list[Tensor], age: int, grad_norm: Tensor) -> None:
        """Change the plain gradients in place, given their memory; `age` is 1 right after a sample.

        `grad_norm` is ‖g‖ over all parameters, including those without a memory.
        """


def generator_state(generator: random.Random) -> list[Any]:
    """A generator's state in plain types."""
    version, words, gauss = generator.getstate()
    return [version, list(words), gauss]


def generator_from(state: list[Any]) -> random.Random:
    """The generator that continues from `generator_state`; raises if no generator can have that state."""
    try:
        version, words, gauss = state
        generator = random.Random()
        generator.setstate((version, tuple(words), gauss))
        is_kept = generator_state(generator) == [version, list(words), None]
        is_alive = any(words[:-1])  # an all-zero state yields only zeros
    except (TypeError, ValueError, OverflowError, LookupError) as error:
        raise ValueError(f"generator must be the state of a random.Random, got a damaged one: {error}.") from error
    if not (is_kept and is_alive):
        raise ValueError("generator must be the state of a random.Random, got one that no generator can have.")
    return generator
