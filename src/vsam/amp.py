"""Mixed precision with loss scaling: a GradScaler that runs both passes."""

from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from vsam.optimizer import SharpnessAware

__all__ = ["GradScaler"]


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` whose `step(optimizer, closure)` runs both passes of a sampled step.

    The closure calls `scaler.scale(loss).backward()` and returns the unscaled loss. Overflow in either pass skips the
    step and lowers the scale. Without a closure, call `scaler.perturb(optimizer)` in place of `optimizer.perturb()`.
    Other optimizers work as with torch's scaler.

    Example:
        >>> scaler = GradScaler("cuda")
        >>> def closure():
        ...     with torch.autocast("cuda", dtype=torch.float16):
        ...         loss = criterion(model(inputs), targets)
        ...     scaler.scale(loss).backward()
        ...     return loss
        >>> loss = scaler.step(optimizer, closure)
        >>> scaler.update()
    """

    def perturb(self, optimizer: SharpnessAware) -> bool:
        """`optimizer.perturb()` on scaled gradients."""
        return bool(optimizer.perturb(scaler=self if self.is_enabled() else None))

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscale after each pass, step unless a gradient overflowed, and return the closure's loss."""
        if not isinstance(optimizer, SharpnessAware) or not self.is_enabled():
            return super().step(optimizer, *args, **kwargs)
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is not OptState.READY:
            raise RuntimeError(
                "step() or unscale_() has already been called since update(). step() unscales both passes itself; "
                "to clip gradients, construct the optimizer with max_grad_norm=."
            )
        loss = optimizer.step(*args, scaler=self, **kwargs)
        state["stage"] = OptState.STEPPED
        return loss

    def take_overflow(self, optimizer: SharpnessAware, found_inf: Tensor) -> None:
        """Record on the device whether the gradients overflowed, for `update`."""
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {found_inf.device: found_inf}

    def inverse_scale(self) -> Tensor:
        """1/scale, exactly as torch's scaler computes it."""
        if self._scale is None:
            raise RuntimeError("The gradients were not scaled: call scaler.scale(loss).backward() in the closure.")
        return self._scale.double().reciprocal().float()
