"""What happens when a gradient is not finite: the step is skipped, counted, and reported once."""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vsam.caller import warn_caller

__all__ = ["Outcomes", "step_fused", "takes_found_inf"]

_LOOK_EVERY = 100
"""After how many steps that a fused optimizer decided on its own they are looked at, so that skips do get reported."""


class Outcomes:
    """How many steps were skipped and how long ago the last sample was.

    Where a fused optimizer decides on the device whether to skip, its answers wait there until somebody asks.
    """

    def __init__(self, num_skipped: int = 0, age: int | None = None) -> None:
        self._num_skipped, self._age = num_skipped, age
        self._waiting: list[tuple[bool, Tensor]] = []
        self._has_warned = False

    @property
    def num_skipped(self) -> int:
        """The number of skipped steps."""
        self._fetch()
        return self._num_skipped

    @property
    def age(self) -> int | None:
        """Steps since the last sample that was not skipped, 0 right after it, None before the first."""
        if any(was_sampled for was_sampled, _ in self._waiting):
            self._fetch()
        return None if self._age is None else self._age + len(self._waiting)

    def add(self, was_sampled: bool, was_skipped: bool | Tensor) -> None:
        """Take in a step; an answer that is a tensor is left on the device for now."""
        if isinstance(was_skipped, Tensor):
            self._waiting.append((was_sampled, was_skipped))
            if len(self._waiting) == _LOOK_EVERY:
                self._fetch()
        else:
            self._fetch()
            self._take_in(was_sampled, was_skipped)

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
        if was_skipped and not self._has_warned:
            self._has_warned = True
            warn_caller(
                "A gradient was not finite, or its norm was not: the step was skipped. Further skips are "
                "counted in num_skipped and not reported. If they are many, lower the learning rate or rho."
            )


def takes_found_inf(base: Optimizer) -> bool:
    """Whether the optimizer is fused and can skip a step by itself, without anybody waiting for the device."""
    is_fused = all(group.get("fused") for group in base.param_groups)
    return is_fused and bool(getattr(base, "_step_supports_amp_scaling", False))


def step_fused(base: Any, is_finite: Tensor) -> None:
    """Let a fused optimizer step where `is_finite` holds, decided on the device."""
    base.grad_scale, base.found_inf = None, (~is_finite).to(torch.float32)
    try:
        base.step()
    finally:
        del base.grad_scale, base.found_inf
