"""Watch the sharpness of a run while it trains."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn

from vsam._step.records import StepRecord
from vsam.checks import check_count, check_not_negative
from vsam.sharpness.measurement import measure
from vsam.sharpness.objective import Loss
from vsam.sharpness.results import Estimate
from vsam.sharpness.session import Mode, check_batches, check_mode, unwrapped

_MEASURED = ("top_eigenvalues", "ascent")


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """The sharpness of the loss after a step.

    Args:
        step: number of the step, from 1.
        loss: the mean loss over the watched batches.
        top_eigenvalue: of the Hessian.
        ascent: L(w + ρ g/‖g‖) − L(w) with the gradient over all watched batches.
        batch_ascent: the same per batch along its own gradient, averaged.
    """

    step: int
    loss: float
    top_eigenvalue: Estimate
    ascent: Estimate
    batch_ascent: Estimate


class Watch:
    """A listener for `optimizer.subscribe` that measures the top eigenvalue and SAM's sharpness every few steps.

    The run itself does not change: weights, gradients, generators and statistics are as without it. With DDP, subscribe
    it on all ranks.

    Args:
        model, loss, batches, rho, mode: as in `measure`; a few fixed batches are enough.
        every: steps between measurements.
        options: any other option of `measure`, such as `max_iterations`.

    Cost: per measurement at most `max_iterations` (50) Hessian-vector products, of two to four gradients each.

    Example:
        >>> def loss(model, batch):
        ...     return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        >>> watch = Watch(model, loss, [(inputs, targets)], every=500)
        >>> stop = optimizer.subscribe(watch)
        >>> watch.records
        []
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: Iterable[Any],
        *,
        every: int = 500,
        rho: float = 0.05,
        mode: Mode = "eval",
        **options: Any,
    ) -> None:
        unwrapped(model)
        self.every = check_count("every", every, least=1, why="it counts steps")
        self.records: list[WatchRecord] = []
        self._what = (model, loss, check_batches(batches), check_not_negative("rho", rho))
        self._options = {"mode": check_mode(mode), **options}
        # A misspelt option is refused here, not after the first 500 steps.
        inspect.signature(measure).bind(*self._what, what=_MEASURED, **self._options)

    def __call__(self, record: StepRecord) -> None:
        """Measure if this step is due."""
        if self.is_due(record.step):
            self.measure(record.step)

    def is_due(self, step: int) -> bool:
        """Return whether to measure after this step."""
        return step % self.every == 0

    def measure(self, step: int) -> WatchRecord:
        """Measure now, for loops whose optimizer has no `subscribe`, and add the record to `records`."""
        found: Any = measure(*self._what, what=_MEASURED, **self._options)
        record = WatchRecord(step, found.loss, found.top_eigenvalues[0], found.ascent, found.batch_ascent)
        self.records.append(record)
        return record
