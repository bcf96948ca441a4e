"""The three questions: when to sample, where, and what to do in between.

To write a part, subclass `When`, `Where` or `Between`, store the settings as attributes
named like the constructor's arguments, and return whatever changes during training from `state_dict()`.
"""

import inspect
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

__all__ = ["Between", "KnowsBefore", "KnowsLength", "Part", "When", "Where", "generator_from", "generator_state"]


class Part(ABC):
    """A named choice with settings, a state and a sentence that says what it does."""

    generator: random.Random | None = None
    """The part's own generator, if it draws: the optimizer saves it, and rewinds it when a step fails."""

    num_buffers: int = 0
    """Parameter-sized buffers that the part keeps from step to step."""

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self.settings().items())
        return f"{type(self).__name__}({listed})"

    @abstractmethod
    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that changes during training, in plain types: the generator, if the part has one."""
        return {} if self.generator is None else {"generator": generator_state(self.generator)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        if self.generator is not None:
            self.generator = generator_from(state.get("generator"))


class When(Part):
    """Is the second gradient taken at this step?

    Implement `before`, or `after` if the decision needs the first gradient.
    """

    watch: int | None = 0
    """How many of the last tensors `observe` wants norms of: 0 for none, None for all."""

    @property
    @abstractmethod
    def rate(self) -> float | None:
        """The fraction of steps sampled under the current rule. None stands for the fraction so far."""

    @property
    def expected_rate(self) -> float | None:
        """The fraction of a run's steps that the settings promise to sample. None if not known in advance."""
        return None

    @property
    def decides_late(self) -> bool:
        """True if `after` decides, for lack of a `before`."""
        return type(self).before is When.before

    def before(self, step: int) -> bool | None:
        """Decide before the first gradient of this step, counted from 1. None leaves it to `after`."""
        return None

    def after(self, step: int, grad_norm: float) -> bool:
        """Decide on ‖g‖, which costs a device sync. Called again if the step fails: change state in `advance` only."""
        raise NotImplementedError

    def set_total_steps(self, total_steps: int | None) -> None:
        """Set the length of the run. Rules that do not depend on it ignore it."""

    def observe(self, psf_norm: Tensor, grad_norm: Tensor) -> None:
        """Record a sample's ‖PSF‖ and ‖g‖ over the watched tensors. Reading them here would cost a device sync.

        They are not finite if the step turns out to be skipped.
        """

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        """Record that a step has ended. Apart from draws, nothing else may change the state."""

    def details(self) -> dict[str, float | None]:
        """More fields for the step's record."""
        return {}


class KnowsLength(When):
    """A rule that depends on the length of the run, which an integration may set after the construction."""

    total_steps: int | None = None

    def set_total_steps(self, total_steps: int | None) -> None:
        """Set the length of the run, if it is not known yet."""
        from vsam.checks import check_count

        if total_steps is not None and self.total_steps is None:
            self.total_steps = check_count("total_steps", total_steps, least=1, why="it is the length of the run")

    @property
    def length(self) -> int:
        """T, the length of the run. Raises if it is not known."""
        if self.total_steps is None:
            raise ValueError(
                f"{type(self).__name__} needs the length of the run: pass total_steps=num_epochs * len(loader) to the "
                "optimizer. The integrations in vsam.integrations set it by themselves, if their loop knows it."
            )
        return self.total_steps


class Where(Part):
    """At which point is the second gradient taken?"""

    rho: float

    only: Literal["norm"] | None = None
    """Which parameters are perturbed and enter the norm, "norm" for those of normalisation layers, None for all."""

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments by name, without `only` if it is None."""
        return {name: value for name, value in super().settings().items() if name != "only" or value is not None}

    @property
    def passes(self) -> float:
        """Extra passes per sample."""
        return 1.0

    @abstractmethod
    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """Move the weights to w + e in place, and leave the gradients alone.

        `rhos` holds one radius per tensor, `norm` is ‖g‖ over all of them.
        """

    def directions(self, gradients: list[Tensor], memory: list[Tensor | None]) -> list[Tensor]:
        """Return what `perturb_` gets instead of the gradients, given what is remembered of earlier ones."""
        return gradients

    def remember(self, gradients: list[Tensor], memory: list[Tensor | None]) -> list[Tensor] | None:
        """Return what to remember of a step's first gradients, as new tensors, or None."""
        return None

    def ahead(self) -> "KnowsBefore | None":
        """Return the part that moves the weights before the first pass of a sampled step, if any."""
        return None


class KnowsBefore(Where):
    """Knows its offset before the only pass: a sampled step is one pass at w + e, and returns the loss there."""

    share: float = 0.0
    """The fraction of the batch whose gradient gives the offset, in a pass before the full one; 0 for none."""

    @property
    def passes(self) -> float:
        """The fraction of the batch in the pass before the full one."""
        return self.share

    def check_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Raise if the base optimizer's parameter groups lack what this part needs."""

    def ahead(self) -> "KnowsBefore":
        """Return itself."""
        return self

    @abstractmethod
    def direction(self, state: Mapping[str, Any], gradient: Tensor | None) -> Tensor | None:
        """Return what `perturb_` gets for a parameter instead of a gradient.

        `state` is the base optimizer's state of that parameter, `gradient` that on a fraction of the batch, if any.
        """


class Between(Part):
    """The gradient that the base optimizer gets."""

    uses_psf: bool = False
    """Whether `at_sample` reads the PSF, which costs a copy of the first gradient during the second pass."""

    def at_sample(self, sharp: list[Tensor], psf: list[Tensor], grad_norm: Tensor) -> list[Tensor] | None:
        """Change the sharp gradients gs = g + PSF of a sample in place. Return what to remember, or None.

        The PSF may be changed in place and returned.
        """
        return None

    @abstractmethod
    def reuse_(self, gradients: list[Tensor], memory: list[Tensor], age: int, norm: Callable[[], Tensor]) -> None:
        """Change the plain gradients in place, given their memory. `age` is 1 right after a sample.

        `norm()` is ‖g‖ over all parameters, including those without a memory. Ask before changing the gradients.
        """

    def ahead(self) -> KnowsBefore | None:
        """Return the part that moves the weights before the first pass of a step that is not sampled, if any."""
        return None


def generator_state(generator: random.Random) -> list[Any]:
    """A generator's state in plain types."""
    version, words, gauss = generator.getstate()
    return [version, list(words), gauss]


def generator_from(state: Any) -> random.Random:
    """Return the generator that continues from `generator_state`. Raise if no generator can have that state."""
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
