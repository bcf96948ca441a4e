"""How a step runs inside Lightning's loops: what is repeated, clipped, and hidden from hooks and metrics."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from lightning.pytorch.trainer import call
from torch import Tensor

from vsam import tensors
from vsam.amp import GradScaler
from vsam.bases import bases_of
from vsam.integrations.lightning_metrics import metrics_kept
from vsam.lightning_closure import NO_LOSSES, check_strategy
from vsam.methods import ESAM
from vsam.optimizer import SharpnessAware
from vsam.rng import RngState

__all__ = ["backward_without_hooks", "install"]


def install(trainer: Any, kind: type) -> None:
    """Make a trainer's loops run the second pass, for modules of this kind with a sharpness-aware optimizer."""
    plugin, loop = trainer.precision_plugin, trainer.fit_loop.epoch_loop.automatic_optimization
    if "optimizer_step" in vars(plugin):
        return
    if type(getattr(plugin, "scaler", None)) in (torch.amp.GradScaler, torch.cuda.amp.GradScaler):
        plugin.scaler.__class__ = GradScaler  # adds methods only
    window: list[_MicroBatch] = []
    # The loops call both; a module's own optimizer_step() calls the second as well.
    loop._make_closure = partial(_make_closure, loop, kind, window)
    plugin.optimizer_step = partial(_optimizer_step, plugin, kind, window)


def _is_ours(module: object, kind: type, optimizer: object) -> bool:
    return isinstance(module, kind) and isinstance(optimizer, SharpnessAware)


class _MicroBatch:
    """A training step that can be repeated.

    Args:
        training_step: runs it, and returns Lightning's result with the loss over the number of micro-batches.
        device: whose generator it may draw from.
    """

    def __init__(self, training_step: Callable[[], Any], device: torch.device) -> None:
        self._training_step, self._device = training_step, device
        self._rng: RngState | None = None
        self.loss: Tensor | None = None

    def first(self) -> Any:
        """Run it as Lightning does, and note what is needed to repeat it."""
        self._rng = RngState([self._device])
        result = self._training_step()
        self.loss = result.loss
        return result

    def again(self) -> Any:
        """The loss once more, with the same random numbers."""
        assert self._rng is not None
        self._rng.restore()
        return self._training_step().closure_loss


def _make_closure(
    loop: Any, kind: type, window: list[_MicroBatch], kwargs: Any, optimizer: Any, batch_index: int
) -> Any:
    """Lightning's closure for a batch, whose training step is added to those that this step accumulates."""
    closure = type(loop)._make_closure(loop, kwargs, optimizer, batch_index)
    module = loop.trainer.lightning_module
    if _is_ours(module, kind, optimizer):
        _check_automatic(optimizer, kwargs)
        if closure._zero_grad_fn is not None:
            window.clear()
        if closure._backward_fn is not None:
            window.append(_MicroBatch(closure._step_fn, module.device))
            closure._step_fn = window[-1].first
    return closure


def _check_automatic(optimizer: SharpnessAware, kwargs: Any) -> None:
    """Refuse what cannot be repeated."""
    if isinstance(optimizer, ESAM):
        raise RuntimeError(NO_LOSSES)
    if "batch" not in kwargs:
        raise RuntimeError(
            "training_step(self, dataloader_iter) fetches its batches itself, so the second pass would run on the next "
            "one. Write training_step(self, batch, batch_idx)."
        )


def _optimizer_step(
    plugin: Any, kind: type, window: list[_MicroBatch], optimizer: Any, model: Any, closure: Any, **kwargs: Any
) -> Any:
    """Replaces a precision plugin's method: take the step that is due."""
    if not _is_ours(model, kind, optimizer):
        return type(plugin).optimizer_step(plugin, optimizer, model=model, closure=closure, **kwargs)
    check_strategy(model.trainer)
    scaler = _scaler(plugin)
    if not model.automatic_optimization:
        return _Step(model, optimizer, scaler, closure).take()
    micro_batches = list(window)
    window.clear()
    if not micro_batches:  # an epoch without backward passes, such as weight averaging's for BatchNorm
        return closure()
    return _AutomaticStep(model, optimizer, scaler, closure, micro_batches).take()


def _scaler(plugin: Any) -> GradScaler | None:
    scaler = getattr(plugin, "scaler", None)
    if scaler is None or not scaler.is_enabled():
        return None
    if not isinstance(scaler, GradScaler):
        raise RuntimeError(
            f"{type(scaler).__name__} cannot run the second pass. Pass the trainer "
            "plugins=MixedPrecision('16-mixed', 'cuda', scaler=vsam.amp.GradScaler('cuda'))."
        )
    return scaler


class _Step:
    """One step of manual optimisation.

    Args:
        module: the module that is trained.
        optimizer: its optimizer itself, not Lightning's wrapper.
        scaler: what scales the losses, if anything.
        closure: runs a pass; Lightning's empty one if `opt.perturb()` was called.
    """

    def __init__(self, module: Any, optimizer: SharpnessAware, scaler: GradScaler | None, closure: Any) -> None:
        self.module, self.trainer, self.optimizer, self.closure = module, module.trainer, optimizer, closure
        self.scaler = scaler
        self.unscaled = None if scaler is None or isinstance(optimizer, ESAM) else _FirstUnscaled(scaler)

    def take(self) -> Any:
        """Take the step; returns the loss of the first pass."""
        hook = bases_of(self.optimizer.base)[0].register_step_pre_hook(self.before_base)
        try:
            loss = self._step()
        finally:
            hook.remove()
        if self.scaler is not None and self.has_gradients():
            self.scaler.update()
        return loss

    def _step(self) -> Any:
        if getattr(self.closure, "__name__", "") == "do_nothing_closure":
            self.call_hooks()
            return self.optimizer.step(scaler=self.scaler)
        return self.optimizer.step(self.run, scaler=self.unscaled or self.scaler)

    def has_gradients(self) -> bool:
        """Whether there are gradients to step with."""
        return True

    def before_base(self, *_: object) -> None:
        """Called before the first base steps: the gradients are what the bases get."""
        if isinstance(self.optimizer, ESAM):  # which runs backward itself
            self.call_hooks()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run a pass, and hide the second from hooks and metrics."""
        if self.optimizer.is_second_pass:
            if self.unscaled is not None:
                self.unscaled.is_unscaled = False
            with metrics_kept(self.module):
                return self.second(*args, **kwargs)
        loss = self.first(*args, **kwargs)
        if self.unscaled is not None and self.has_gradients():
            self.unscaled.unscale(self.optimizer)
        if not isinstance(self.optimizer, ESAM):
            self.call_hooks()
        return loss

    def first(self, *args: Any, **kwargs: Any) -> Any:
        """The first pass."""
        return self.closure(*args, **kwargs)

    def second(self, *args: Any, **kwargs: Any) -> Any:
        """The second pass."""
        return self.closure(*args, **kwargs)

    def call_hooks(self) -> None:
        """Call `on_before_optimizer_step`."""
        call._call_callback_hooks(self.trainer, "on_before_optimizer_step", self.optimizer)
        call._call_lightning_module_hook(self.trainer, "on_before_optimizer_step", self.optimizer)


class _AutomaticStep(_Step):
    """One step of automatic optimisation.

    Args:
        module, optimizer, scaler: as above.
        closure: runs the last micro-batch of the first pass.
        micro_batches: all of them.
    """

    def __init__(
        self, module: Any, optimizer: Any, scaler: Any, closure: Any, micro_batches: list[_MicroBatch]
    ) -> None:
        super().__init__(module, optimizer, scaler, closure)
        self._micro_batches = micro_batches
        self._earlier: list[tuple[Tensor, Tensor]] = []

    def take(self) -> Any:
        """Take the step on all micro-batches; returns the sum of their losses in the first pass."""
        if len(self._micro_batches) > 1:
            parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
            self._earlier = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
            for parameter, _ in self._earlier:  # the optimizer starts without gradients
                parameter.grad = None
        return super().take()

    def has_gradients(self) -> bool:
        """Whether a training step returned a loss."""
        return any(micro_batch.loss is not None for micro_batch in self._micro_batches)

    def first(self) -> Any:
        """Run the last micro-batch on top of the others."""
        for parameter, gradient in self._earlier:
            parameter.grad = gradient
        self.closure()
        losses = [micro_batch.loss for micro_batch in self._micro_batches if micro_batch.loss is not None]
        return torch.stack(losses).sum() if losses else None

    def second(self) -> None:
        """Repeat all micro-batches; the last one syncs gradients."""
        strategy, last = self.trainer.strategy, self._micro_batches[-1]
        block = getattr(strategy, "block_backward_sync", nullcontext)
        for micro_batch in self._micro_batches:
            with nullcontext() if micro_batch is last else block():
                loss = micro_batch.again()
                if loss is not None:
                    backward_without_hooks(self.module, self.optimizer, loss)

    def before_base(self, *_: object) -> None:
        """Clip the gradients that the bases get."""
        trainer = self.trainer
        trainer.precision_plugin._clip_gradients(
            self.module,
            self.optimizer,
            trainer.gradient_clip_val,
            gradient_clip_algorithm=trainer.gradient_clip_algorithm,
        )


class _FirstUnscaled:
    """A scaler whose first pass is already unscaled, so that hooks see the true gradient."""

    def __init__(self, scaler: GradScaler) -> None:
        self._scaler = scaler
        self.is_unscaled = False
        """Whether the gradients are unscaled, as they are between the two passes."""

    def unscale(self, optimizer: SharpnessAware) -> None:
        """Unscale the gradients of the first pass."""
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        with torch.no_grad():
            tensors.multiply_(gradients, self._scaler.inverse_scale())
        self.is_unscaled = True

    def inverse_scale(self) -> Tensor:
        """1/scale, or 1 if the gradients are already unscaled."""
        inverse = self._scaler.inverse_scale()
        return torch.ones_like(inverse) if self.is_unscaled else inverse

    def take_overflow(self, optimizer: SharpnessAware, found_inf: Tensor) -> None:
        """Pass on whether gradients overflowed."""
        self._scaler.take_overflow(optimizer, found_inf)


def backward_without_hooks(module: Any, optimizer: Any, loss: Tensor, *args: Any, **kwargs: Any) -> None:
    """A backward pass as the trainer's strategy runs it, without calling hooks."""
    strategy = module.trainer.strategy
    plugin = strategy.precision_plugin
    scaler = getattr(plugin, "scaler", None)
    strategy.pre_backward(loss)
    plugin.backward(loss if scaler is None else scaler.scale(loss), module, optimizer, *args, **kwargs)
    strategy.post_backward(loss)
