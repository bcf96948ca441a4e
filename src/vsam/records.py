"""What the optimizer tells: one record a step to listeners, one sample to the part that decides."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

__all__ = ["Sample", "StepRecord"]


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What happened in one step.

    Args:
        step: number of the step, from 1.
        sampled: the second gradient was taken.
        skipped: a gradient was not finite, so weights and base state were left alone.
        loss: what the closure returned in the first pass, detached; None without a closure.
        rate: the share of steps that are sampled under the rule in force.
        age: steps since the last sample, 0 at a sample, None before the first one.
        grad_norm: ‖g‖ over all parameters; None where nobody listens and the method does not need it.
        psf_norm: ‖PSF‖ over all parameters; None also on a plain step.
        s: vSAM's target, samples per window.
        change_var: vSAM's ĉ_var at its latest update.
        change_norm: vSAM's ĉ_norm at its latest update.
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


@dataclass(frozen=True, slots=True)
class Sample:
    """Norms of one sample over the watched tensors, still on the device: looked at when a decision is due.

    Args:
        psf_norm: n = ‖PSF‖_L.
        grad_norm: ‖g‖_L.
        is_finite: whether the step counted; a sample that is not finite must not enter the law.
    """

    psf_norm: Tensor
    grad_norm: Tensor
    is_finite: Tensor
