"""Record what happens: the counters of a run, the latest step, and listeners to every step."""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsam._step.undo import Step
from vsam.parts import When

__all__ = ["StepRecord"]

COUNTERS = ("num_steps", "num_samples", "num_skipped", "age")
"""The names of the counters in `state_dict`."""

_FETCH_EVERY = 100
"""Steps that a fused base decided by itself may wait this long to be read, so that skips get reported."""

_NUM_LOSSES = 100
"""Samples after which the losses are read once, to warn of a rho that is too large."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Facts about one step.

    Args:
        step: number of the step, from 1.
        sampled: the second gradient was taken.
        skipped: a gradient was not finite, so weights and base state were left alone.
        loss: what the closure returned in the first pass, detached; None without a closure.
        rate: the fraction of steps sampled under the current rule.
        age: steps since the last sample, 0 at a sample, None before the first one.
        grad_norm: ‖g‖ over all parameters; None if there is no listener and the method does not need it.
        psf_norm: ‖PSF‖ over all parameters; None at a plain step, and if there is no listener and the method does not
            need it.
        s: vSAM's target, samples per window.
        change_var: vSAM's ĉ_var at its latest update.
        change_norm: vSAM's ĉ_norm at its latest update.
        displaced: the only gradient, and with it the loss, was taken at w + e.
        rise: L(w + e)/L(w) − 1 of a sampled step, from the losses that the closure returned in the two passes. With
            several processes they are this rank's. None at a plain step, without a closure, for methods that never see
            both losses (MSAM, SAM with a share), and if the losses are no finite numbers or L(w) is not above zero.
    """

    step: int
    sampled: bool
    skipped: bool
    loss: Any
    rate: float
    age: int | None
    grad_norm: float | None = None
    psf_norm: float | None = None
    s: float | None = None
    change_var: float | None = None
    change_norm: float | None = None
    displaced: bool = False
    rise: float | None = None


Listener = Callable[[StepRecord], object]


class Records:
    """The counters, the latest record and its listeners. Numbers stay on the device until somebody reads them.

    Args:
        warn: called when the first step was skipped, and once if rho is too large.
    """

    def __init__(
        self, warn: Callable[[str], object], listeners: "OrderedDict[object, Listener] | None" = None, **counters: Any
    ) -> None:
        self.num_steps: int = counters.get("num_steps", 0)
        self.num_samples: int = counters.get("num_samples", 0)
        self._num_skipped: int = counters.get("num_skipped", 0)
        self._age: int | None = counters.get("age")
        self._waiting: list[tuple[bool, Tensor]] = []
        self._warn, self._has_warned = warn, False
        self.listeners = OrderedDict() if listeners is None else listeners  # not copied for an undo
        self._fields: dict[str, Any] = {}
        self._last: StepRecord | None = None
        self._losses: list[Any] | None = None if self.num_samples else []  # of the first samples, unless resumed

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

    @property
    def last(self) -> StepRecord | None:
        """The latest record, fetched from the device when first read."""
        if self._fields:
            fields, self._fields = self._fields, {}
            rise = _rise([fields.pop("losses")])
            fetched: dict[str, Any] = {
                name: v.item() if isinstance(v, Tensor) and name != "loss" else v for name, v in fields.items()
            }
            if fetched["skipped"]:
                fetched["psf_norm"] = None
            self._last = StepRecord(age=self.age, rise=rise, **fetched)
        return self._last

    def counters(self) -> dict[str, int | None]:
        """The counters, in plain types."""
        return {name: getattr(self, name) for name in COUNTERS}

    def add(self, step: Step, when: When, grad_norm: Tensor | None, psf_norm: Tensor | None, is_skipped: bool) -> None:
        """Record a step, and tell the rule that it has ended."""
        sampled = bool(step.sampled) or step.share > 0
        skipped = is_skipped if step.is_finite is None else ~step.is_finite
        self.num_steps += 1
        self.num_samples += sampled
        self._has_warned |= step.scaler is not None  # a scaler lowers its scale by itself
        self._waiting.append((sampled, skipped)) if isinstance(skipped, Tensor) else self._count(sampled, skipped)
        if len(self._waiting) == _FETCH_EVERY:
            self._fetch()
        losses = _losses(step.loss, step.second_loss)
        if self.num_steps > _NUM_LOSSES and not self.num_samples:
            self._losses = None  # samples that start late raise a loss near zero many times, and that is fine
        if losses is not None and self._losses is not None:
            self._losses.append(losses)
        rate, details = when.rate, when.details()
        when.advance(self.num_steps, bool(step.sampled) or step.is_displaced_sample, is_skipped)
        step.was_recorded = True
        self._fields = {
            "step": self.num_steps,
            "sampled": sampled,
            "skipped": skipped,
            "loss": _detached(step.loss),
            "rate": self.num_samples / self.num_steps if rate is None else rate,
            "grad_norm": grad_norm,
            "psf_norm": psf_norm,
            "displaced": step.is_displaced,
            "losses": losses,
            **details,
        }

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every record. Return a function that unsubscribes it."""
        if not callable(listener):
            raise ValueError(f"listener must be a function that takes a record, got {listener!r}.")
        key, listeners = object(), self.listeners
        listeners[key] = listener
        return lambda: listeners.pop(key, None) and None

    def publish(self) -> None:
        """Call the listeners with the latest record. Warn once of a rho that is too large."""
        if self._losses is not None and len(self._losses) == _NUM_LOSSES:
            self._check_rise()
        for listener in list(self.listeners.values()):
            assert self.last is not None
            listener(self.last)

    def _check_rise(self) -> None:
        losses, self._losses = self._losses or [], None
        halves = losses[: _NUM_LOSSES // 2], losses[_NUM_LOSSES // 2 :]  # a single outlier is in one of them
        if all(rise is not None and rise > 1 for rise in map(_rise, halves)):
            self._warn(
                f"rho is probably too large: over the first {_NUM_LOSSES} samples, the perturbation raised the mean "
                f"loss by {_rise(losses):.0%}. Write rho=vsam.sharpness.radius(model, loss, batches, rise=0.05), the "
                "radius that raises it by 5 %, or halve rho until optimizer.last.rise is well below 1."
            )

    def _fetch(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            flags = torch.stack([flag for _, flag in waiting]).tolist()
            for (was_sampled, _), was_skipped in zip(waiting, flags, strict=True):
                self._count(was_sampled, bool(was_skipped))

    def _count(self, was_sampled: bool, was_skipped: bool) -> None:
        if self._waiting:
            self._fetch()
        if was_sampled and not was_skipped:
            self._age = 0
        elif self._age is not None:
            self._age += 1
        self._num_skipped += was_skipped
        if was_skipped and not self._has_warned:
            self._has_warned = True
            self._warn(
                "A gradient was not finite, or its norm overflowed: the step was skipped. Further skips are counted "
                "in num_skipped and not reported. If there are many, lower the learning rate or rho."
            )


def _detached(loss: Any) -> Any:
    """Return the result of a closure without its graph."""
    if isinstance(loss, Tensor):
        return loss.detach()
    if isinstance(loss, dict):
        return {name: _detached(value) for name, value in loss.items()}
    return tuple(_detached(value) for value in loss) if isinstance(loss, list | tuple) else loss


def _losses(first: Any, second: Any) -> Any:
    """Return the losses of both passes, copied on their device, or None if they are not single numbers."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        # A closure that returns the same memory twice has overwritten the first loss. Reading a DTensor communicates.
        is_single = first.numel() == second.numel() == 1 and first.device == second.device
        if not is_single or hasattr(first, "placements") or first.data_ptr() == second.data_ptr():
            return None
        return torch.stack([first.detach().reshape(()), second.detach().reshape(())])
    return (first, second) if isinstance(first, int | float) and isinstance(second, int | float) else None


def _rise(losses: list[Any]) -> float | None:
    """Return by which fraction the mean of the second losses is above that of the first.

    None if that is no number, or if a first loss is negative: their mean may then be near zero by chance.
    """
    pairs = [pair.tolist() if isinstance(pair, Tensor) else pair for pair in losses if pair is not None]
    pairs = [pair for pair in pairs if all(map(math.isfinite, pair))]
    before, after = (sum(pair[i] for pair in pairs) for i in range(2))
    rise = after / before - 1 if before > 0 and all(pair[0] >= 0 for pair in pairs) else math.inf
    return rise if math.isfinite(rise) else None
