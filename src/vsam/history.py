"""What has happened so far: steps, samples, skipped steps, and how long ago the last sample was."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsam.caller import warn_caller
from vsam.errors import check_count

__all__ = ["History"]

_LOOK_EVERY = 100
"""How many steps that a fused optimizer decided by itself may wait before they are read, so that skips get reported."""


class History:
    """The counters of a run and their state.

    If a fused optimizer decides on the device whether to skip, its answers stay there until they are read.
    """

    fields = ("num_steps", "num_samples", "num_skipped", "age")
    """Their names in `state_dict`."""

    def __init__(self) -> None:
        self.num_steps = self.num_samples = 0
        self._num_skipped = 0
        self._age: int | None = None
        self._waiting: list[tuple[bool, Tensor]] = []
        self._is_silent = False

    @property
    def num_skipped(self) -> int:
        """The number of skipped steps."""
        self._fetch()
        return self._num_skipped

    @property
    def age(self) -> int | None:
        """Steps since the last sample that was not skipped, 0 right after it, None before the first."""
        if self._waiting and any(was_sampled for was_sampled, _ in self._waiting):
            self._fetch()
        return None if self._age is None else self._age + len(self._waiting)

    def add(self, was_sampled: bool, was_skipped: bool | Tensor, *, is_scaled: bool = False) -> None:
        """Count a step; an answer that is a tensor stays on the device for now.

        `is_scaled` says that a scaler lowers its scale after a skip, so that no warning is needed.
        """
        self._is_silent |= is_scaled
        self.num_steps += 1
        self.num_samples += was_sampled
        if isinstance(was_skipped, Tensor):
            self._waiting.append((was_sampled, was_skipped))
            if len(self._waiting) == _LOOK_EVERY:
                self._fetch()
        else:
            if self._waiting:
                self._fetch()
            self._take_in(was_sampled, was_skipped)

    def restorer(self) -> Callable[[], None]:
        """Return a function that restores the counters."""
        before = {**vars(self), "_waiting": list(self._waiting)}
        return lambda: vars(self).update(before)

    def state_dict(self) -> dict[str, int | None]:
        """The counters, in plain types."""
        return {name: getattr(self, name) for name in self.fields}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> "History":
        """The history that continues from `state_dict`; raises on impossible counters."""
        history = cls()
        for name in ("num_steps", "num_samples", "num_skipped"):
            check_count(name, state[name], least=0, why="it counts steps")
        steps, age = state["num_steps"], state["age"]
        if age is not None:
            check_count("age", age, least=0, why="it counts steps")
        for name in ("num_samples", "num_skipped"):
            if state[name] > steps:
                raise ValueError(f"{name} must not be above num_steps={steps}, got {state[name]}.")
        if age is not None and age >= steps:
            raise ValueError(f"age must be below num_steps={steps}, got {age}.")
        history.num_steps, history.num_samples = steps, state["num_samples"]
        history._num_skipped, history._age = state["num_skipped"], age
        return history

    def _fetch(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            flags = torch.stack([flag for _, flag in waiting]).tolist()
            for (was_sampled, _), was_skipped in zip(waiting, flags, strict=True):
                self._take_in(was_sampled, was_skipped)

    def _take_in(self, was_sampled: bool, was_skipped: bool) -> None:
        if was_sampled and not was_skipped:
            self._age = 0
        elif self._age is not None:
            self._age += 1
        self._num_skipped += was_skipped
        if was_skipped and not self._is_silent:
            self._is_silent = True
            warn_caller(
                "A gradient was not finite, or its norm overflowed: the step was skipped. Further skips are counted "
                "in num_skipped and not reported. If there are many, lower the learning rate or rho."
            )
