"""The closures of Lightning's own loops, which it passes to `step` for modules without `SharpnessAwareModule`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from vsam.methods import ESAM
from vsam.optimizer import SharpnessAware

NO_LOSSES = (
    "ESAM chooses samples by their losses, which automatic optimisation does not have. With SharpnessAwareModule from "
    "vsam.integrations.lightning, set self.automatic_optimization = False and call self.optimizers().step(losses), "
    "where losses(keep=None) returns the vector of per-sample losses of the batch, or of the indices keep."
)

_HOOKS = ("on_before_optimizer_step", "on_before_backward", "on_after_backward", "on_before_zero_grad")
"""Hooks that would be called in both passes."""


def adapted(closure: partial[Any], optimizer: SharpnessAware) -> Any:
    """Return what to run for a closure of a precision plugin: None for the empty one, other closures as they are.

    Raise if the second pass would be wrong, because Lightning runs it as if it were another first one.
    """
    if getattr(closure.func, "__name__", "") != "_wrap_closure":
        return closure
    if isinstance(optimizer, ESAM):
        raise RuntimeError(NO_LOSSES)
    module, _, inner = closure.args
    check_strategy(module.trainer)
    for reason in _reasons(module, inner):
        raise _refusal(module, reason)
    metrics = [vars(one) for one in module.modules() if "_update_count" in vars(one)]

    def num_updates() -> int:
        """Return how often something was logged or a metric updated. Logged values are Lightning's own metrics."""
        logged = [vars(value) for value in (module.trainer._results or {}).values()]
        return sum(attributes["_update_count"] for attributes in (*metrics, *logged))

    def run() -> Any:
        before, first = num_updates(), getattr(inner, "_result", None)
        loss = closure()
        if optimizer.is_second_pass:
            inner._result = first
        elif num_updates() != before:
            raise _refusal(module, "self.log() and metrics in the training step would count both passes")
        return loss

    return None if is_empty(inner) else run


def is_empty(closure: Any) -> bool:
    """Return whether this is what Lightning passes if `step()` got no closure in manual optimisation."""
    return getattr(closure, "__name__", "") == "do_nothing_closure"


def check_strategy(trainer: Any) -> None:
    """Refuse strategies that step by themselves, and checkpoints that would only fail after an epoch."""
    strategy = trainer.strategy
    name = type(strategy).__name__
    if strategy.handles_gradient_accumulation or "XLA" in name:
        raise RuntimeError(f"{name} steps by itself and cannot run the second pass: use strategy='auto' or 'ddp'.")
    are_whole = [not getattr(callback, "save_weights_only", False) for callback in trainer.checkpoint_callbacks]
    if name == "ModelParallelStrategy" and any(are_whole):
        raise RuntimeError(
            f"Checkpoints of {name} drop the PSF, counters and generators: use ModelCheckpoint(save_weights_only=True) "
            "and save vsam.distributed.StatefulOptimizer(model, optimizer)."
        )


def _reasons(module: Any, inner: Any) -> Iterator[str]:
    """Yield what would go wrong, as far as is known before the first pass."""
    trainer = module.trainer
    count = trainer.accumulate_grad_batches
    if module.automatic_optimization and getattr(inner, "_backward_fn", None) is not None:
        if count != 1:
            yield f"accumulate_grad_batches={count} leaves earlier micro-batches out of the second pass"
        if trainer.gradient_clip_val or is_overridden(module, "configure_gradient_clipping"):
            yield "gradients would be clipped after each pass instead of right before the base optimizer"
        if is_overridden(module, "optimizer_zero_grad"):
            yield "optimizer_zero_grad() would be called in both passes"
    for hook in _HOOKS:
        if any(is_overridden(owner, hook) for owner in (module, *trainer.callbacks)):
            yield f"{hook}() would be called in both passes"


def _refusal(module: Any, reason: str) -> RuntimeError:
    return RuntimeError(
        f"Lightning runs the second pass as if it were another first one: {reason}. Write:\n"
        "    from vsam.integrations.lightning import SharpnessAwareModule\n"
        f"    class {type(module).__name__}(SharpnessAwareModule, LightningModule):"
    )


def is_overridden(owner: object, hook: str) -> bool:
    """Return whether a hook differs from that of Lightning's classes."""
    return getattr(owner, hook).__module__.split(".")[0] not in ("lightning", "pytorch_lightning")
