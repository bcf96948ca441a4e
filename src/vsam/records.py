"""What the optimizer reports: one record per step to listeners, one sample to the part that decides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

__all__ = ["Listener", "Sample", "StepLog", "StepRecord"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What happened in one step.

    Args:
        step: number of the step, from 1.
        sampled: the second gradient was taken.
        skipped: a gradient was not finite, so weights and base state were left alone.
        loss: what the closure returned in the first pass, detached; None without a closure.
        rate: the fraction of steps sampled under the current rule.
        age: steps since the last sample, 0 at a sample, None before the first one.
        grad_norm: ‖g‖ over all parameters; None if there is no listener and the method does not need it.
        psf_norm: ‖PSF‖ over all parameters; also None at a plain step.
        s: vSAM's target, samples per window.
        change_var: vSAM's ĉ_var at its latest update.
        change_norm: vSAM's ĉ_norm at its latest update.
        displaced: the only gradient, and with it the loss, was taken at w + e.
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


@dataclass(frozen=True, slots=True)
class Sample:
    """Norms of one sample over the watched tensors, still on the device: read when a decision is due.

    Args:
        psf_norm: n = ‖PSF‖_L; not finite if the step does not count, and then it must not enter a law.
        grad_norm: ‖g‖_L.
    """

    psf_norm: Tensor
    grad_norm: Tensor


Listener = Callable[[StepRecord], object]


class StepLog:
    """The latest record and its listeners; numbers stay on the device until they are read."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._fields: dict[str, Any] = {}
        self._last: StepRecord | None = None

    @property
    def has_listeners(self) -> bool:
        """Whether there are any."""
        return bool(self._listeners)

    @property
    def last(self) -> StepRecord | None:
        """The latest record, fetched from the device when first read."""
        if self._fields:
            fields, self._fields = self._fields, {}
            loss, age = fields.pop("loss"), fields.pop("age")()
            fetched: dict[str, Any] = {name: v.item() if isinstance(v, Tensor) else v for name, v in fields.items()}
            if fetched["skipped"]:
                fetched["psf_norm"] = None
            self._last = StepRecord(loss=loss, age=age, **fetched)
        return self._last

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every record; returns a function that unsubscribes it."""
        if not callable(listener):
            raise ValueError(f"listener must be a function that takes a record, got {listener!r}.")
        key = object()
        self._listeners[key] = listener
        return lambda: self._listeners.pop(key, None) and None

    def forget(self) -> None:
        """Drop the latest record."""
        self._fields, self._last = {}, None

    def write(self, **fields: Any) -> None:
        """Store a step's fields; `age` is a function, since it may only be known later."""
        fields["loss"] = _detached(fields["loss"])
        self._fields = fields

    def restorer(self) -> Callable[[], None]:
        """Return a function that restores the latest record."""
        fields, last = self._fields, self._last

        def restore() -> None:
            self._fields, self._last = fields, last

        return restore

    def tell(self) -> None:
        """Call the listeners with the latest record."""
        for listener in list(self._listeners.values()):
            record = self.last
            assert record is not None
            listener(record)


def _detached(loss: Any) -> Any:
    """What a closure returned, without its graph."""
    if isinstance(loss, Tensor):
        return loss.detach()
    if isinstance(loss, dict):
        return {name: _detached(value) for name, value in loss.items()}
    return tuple(_detached(value) for value in loss) if isinstance(loss, list | tuple) else loss
