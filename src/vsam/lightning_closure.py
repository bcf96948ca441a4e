"""The closures of Lightning's optimizers: refuses what would go wrong with them, without importing Lightning."""

from functools import partial
from typing import Any

__all__ = ["NO_LOSSES", "LightningClosure", "check_strategy", "from_lightning", "is_lightning"]

NO_LOSSES = (
    "ESAM chooses samples by their losses, which automatic optimisation does not have. Write "
    "class Net(SharpnessAwareModule, LightningModule) with SharpnessAwareModule from vsam.integrations.lightning, set "
    "self.automatic_optimization = False and call self.optimizers().step(losses) in training_step, where "
    "losses(keep=None) returns the vector of per-sample losses of the batch, or of the indices keep."
)

_HOOKS = ("on_before_optimizer_step", "on_before_backward", "on_after_backward", "on_before_zero_grad")
"""Hooks that would be called in both passes."""


def is_lightning(closure: object) -> bool:
    """Whether this is what Lightning's precision plugins pass to `step`."""
    return type(closure) is partial and getattr(closure.func, "__name__", "") == "_wrap_closure"


def from_lightning(closure: partial[Any]) -> Any:
    """What to run for a Lightning closure: None for the empty one; other closures stay as they are."""
    if not is_lightning(closure):
        return closure
    is_empty = getattr(closure.args[-1], "__name__", "") == "do_nothing_closure"  # opt.step() in manual optimisation
    checked = LightningClosure(closure)
    return None if is_empty else checked


def check_strategy(trainer: Any) -> None:
    """Refuse strategies that step by themselves, and checkpoints that would only fail after an epoch."""
    strategy = trainer.strategy
    name = type(strategy).__name__
    if strategy.handles_gradient_accumulation or "XLA" in name:
        raise RuntimeError(
            f"{name} steps by itself and cannot run the second pass: train with strategy='auto' or 'ddp'."
        )
    are_whole = [not getattr(callback, "save_weights_only", False) for callback in trainer.checkpoint_callbacks]
    if name == "ModelParallelStrategy" and any(are_whole):
        raise RuntimeError(
            f"Checkpoints of {name} drop the optimizer's PSF, counters and generators: train with "
            "ModelCheckpoint(save_weights_only=True) or enable_checkpointing=False, and save the optimizer with "
            "vsam.distributed.StatefulOptimizer(model, optimizer)."
        )


class LightningClosure:
    """A Lightning closure for a module without `SharpnessAwareModule`: runs only if both passes are correct with it.

    Args:
        closure: calls hooks and clips gradients after each pass.
    """

    def __init__(self, closure: partial[Any]) -> None:
        self._closure = closure
        self._module, _, self._inner = closure.args
        check_strategy(self._module.trainer)
        self._results: list[Any] = []
        self._metrics = [vars(module) for module in self._module.modules() if "_update_count" in vars(module)]
        if (reason := self._reason()) is not None:
            raise RuntimeError(self._refusal(reason))

    def __call__(self) -> Any:
        """Run a pass; Lightning keeps the loss of the first."""
        before = self._num_updates()
        loss = self._closure()
        if not self._results and self._num_updates() != before:
            raise RuntimeError(self._refusal("self.log() and metrics in the training step would count both passes"))
        self._results.append(getattr(self._inner, "_result", None))
        if len(self._results) > 1:
            self._inner._result = self._results[0]
        return loss

    def _reason(self) -> str | None:
        """What would go wrong, as far as is known before the first pass."""
        module, trainer = self._module, self._module.trainer
        if module.automatic_optimization and getattr(self._inner, "_backward_fn", None) is not None:
            if trainer.accumulate_grad_batches != 1:
                count = trainer.accumulate_grad_batches
                return f"accumulate_grad_batches={count} leaves earlier micro-batches out of the second pass"
            if trainer.gradient_clip_val or _is_own(module, "configure_gradient_clipping"):
                return "gradients would be clipped after each pass instead of right before the base optimizer"
        for hook in _HOOKS:
            if any(_is_own(owner, hook) for owner in (module, *trainer.callbacks)):
                return f"{hook}() would be called in both passes"
        return None

    def _num_updates(self) -> int:
        """How often something was logged or a metric updated; logged values are Lightning's own metrics."""
        logged = [vars(value) for value in (self._module.trainer._results or {}).values()]
        return sum(attributes["_update_count"] for attributes in (*self._metrics, *logged))

    def _refusal(self, reason: str) -> str:
        name = type(self._module).__name__
        return (
            f"Lightning runs the second pass as if it were another first one: {reason}. Write:\n"
            "    from vsam.integrations.lightning import SharpnessAwareModule\n"
            f"    class {name}(SharpnessAwareModule, LightningModule):"
        )


def _is_own(owner: object, hook: str) -> bool:
    """Whether a hook overrides that of Lightning's classes."""
    if hook in vars(owner):
        return True
    function = getattr(type(owner), hook, None)
    return function is not None and function.__module__.split(".")[0] not in ("lightning", "pytorch_lightning")
