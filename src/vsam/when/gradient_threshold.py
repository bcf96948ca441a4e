"""Sample when the gradient is large for its time, as AE-SAM does."""

import math
from typing import Any

from vsam.checks import check_entries, check_fraction, check_not_negative, check_number
from vsam.parts import KnowsLength

__all__ = ["GradientThreshold"]


class GradientThreshold(KnowsLength):
    """Take the second gradient when ‖g‖² is at least μ + c·σ.

    `x = ‖g‖²`, `μ ← δ μ + (1−δ) x`, `σ² ← δ σ² + (1−δ)(x − μ)²`, `c = (t/T)·low + (1 − t/T)·high`.

    Args:
        total_steps: T, the length of the run; `t` counts from 0 and stays at T beyond it. None if an integration
            sets it later.
        delta: δ, how slowly mean and variance move, in [0, 1).
        low: c at the end of the run.
        high: c at its start. With −1 and 1 about half of the steps are sampled.

    Cost: about 1.5 passes per step with the default settings, and one device sync per step for ‖g‖.

    Example:
        >>> when = GradientThreshold(total_steps=100)
        >>> when.after(1, 2.0)
        True

    Reference: Jiang et al., An Adaptive Policy to Employ Sharpness-Aware Minimization, ICLR 2023.
    """

    rate = None

    def __init__(
        self, total_steps: int | None = None, delta: float = 0.9, low: float = -1.0, high: float = 1.0
    ) -> None:
        self.set_total_steps(total_steps)
        self.delta = check_fraction("delta", delta, one=False)
        self.low = check_number("low", low)
        self.high = check_number("high", high)
        self.mean: float | None = None
        self.variance = 0.0
        self._next: tuple[float, float] | None = None

    def after(self, step: int, grad_norm: float) -> bool:
        """Return whether ‖g‖² reaches the threshold of this step. A norm that is not finite does not."""
        x = grad_norm * grad_norm
        mean = x if self.mean is None else self.delta * self.mean + (1 - self.delta) * x
        variance = self.delta * self.variance + (1 - self.delta) * (x - mean) * (x - mean)
        if not math.isfinite(mean + variance):
            self._next = None
            return False
        self._next = (mean, variance)
        progress = min(step - 1, self.length) / self.length
        c = progress * self.low + (1 - progress) * self.high
        return self.mean is None or x >= mean + c * math.sqrt(variance)

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        """Keep the mean and the variance that this step's gradient gave, unless the step was skipped."""
        if self._next is not None and not was_skipped:
            self.mean, self.variance = self._next
        self._next = None

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return "takes the second gradient when the squared gradient norm is large compared with its running mean"

    def state_dict(self) -> dict[str, Any]:
        """Mean and variance."""
        return {"mean": self.mean, "variance": self.variance}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned. An invalid state raises and changes nothing."""
        check_entries(state, ("mean", "variance"))
        mean = state["mean"] if state["mean"] is None else check_not_negative("mean", state["mean"])
        variance = check_not_negative("variance", state["variance"])
        self.mean, self.variance, self._next = mean, variance, None
