"""One step inside Lightning's loops: both passes, clipping, and a second pass that hooks and metrics do not see."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.trainer import call
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from vsam._step import foreach
from vsam._step.replay import FirstPassRecorder, RngState
from vsam.amp import GradScaler
from vsam.bases import bases_of
from vsam.integrations.lightning_closure import NO_LOSSES, check_strategy, is_empty, is_overridden
from vsam.methods import ESAM
from vsam.optimizer import SharpnessAware

_TRIAL = 1_000
"""The length of the run for methods that need one, in `Trainer(fast_dev_run=True)`."""


def install(trainer: Any, kind: Any) -> None:
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
    trainer.fit_loop.on_run_start = partial(_on_run_start, trainer.fit_loop, kind)


def _on_run_start(loop: Any, kind: Any) -> None:
    """Introduce the optimizers to the run: its length, and the metrics that their second passes must leave alone."""
    module = loop.trainer.lightning_module
    if isinstance(module, kind):
        for optimizer in loop.trainer.optimizers:
            if isinstance(optimizer, SharpnessAware):
                optimizer.hide_second_pass(partial(_save_metrics, module))
                if (steps := _steps_left(loop.trainer)) is not None:
                    optimizer.set_total_steps(optimizer._records.num_steps + steps)
    type(loop).on_run_start(loop)


def _steps_left(trainer: Any) -> int | None:
    """Return how many steps are to come. None if nobody knows: in manual optimisation the module decides."""
    varies = any(isinstance(callback, GradientAccumulationScheduler) for callback in trainer.callbacks)
    if varies or not trainer.lightning_module.automatic_optimization:
        return None
    if trainer.fast_dev_run:  # a trial of a run whose length does not matter
        return _TRIAL
    steps = trainer.estimated_stepping_batches - trainer.global_step  # infinite or negative if unknown
    return steps if 0 < steps < float("inf") else None


class _MicroBatch:
    """A training step that can be repeated.

    Args:
        training_step: runs it, and returns Lightning's result with the loss over the number of micro-batches.
        device: whose generator it may draw from.
    """

    def __init__(self, training_step: Callable[[], Any], device: torch.device) -> None:
        self._training_step, self._device = training_step, device
        self.loss: Tensor | None = None

    def first(self) -> Any:
        """Run it as Lightning does."""
        self._rng = RngState([self._device])
        result = self._training_step()
        self.loss = result.loss
        return result

    def again(self) -> Any:
        """Return the loss once more, with the same random numbers."""
        self._rng.restore()
        return self._training_step().closure_loss


def _make_closure(
    loop: Any, kind: Any, window: list[_MicroBatch], kwargs: Any, optimizer: Any, batch_index: int
) -> Any:
    """Return Lightning's closure for a batch, whose training step is added to those that this step accumulates."""
    closure = type(loop)._make_closure(loop, kwargs, optimizer, batch_index)
    module = loop.trainer.lightning_module
    if not isinstance(module, kind) or not isinstance(optimizer, SharpnessAware):
        return closure
    if isinstance(optimizer, ESAM):
        raise RuntimeError(NO_LOSSES)
    if "batch" not in kwargs:
        raise RuntimeError("training_step fetches its batches itself: write training_step(self, batch, batch_idx).")
    if closure._zero_grad_fn is not None:
        window.clear()
        if is_overridden(module, "optimizer_zero_grad"):
            closure._zero_grad_fn = partial(_zero_grad, closure._zero_grad_fn, optimizer)
    if closure._backward_fn is not None:
        window.append(_MicroBatch(closure._step_fn, module.device))
        closure._step_fn = window[-1].first
    return closure


def _zero_grad(zero_grad: Callable[[], None], optimizer: SharpnessAware) -> None:
    """Run a module's own `optimizer_zero_grad`, and raise if it keeps gradients."""
    before = [(p, p.grad) for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    for parameter, _ in before:
        parameter.grad = torch.ones_like(parameter)
    zero_grad()
    keeps = any(parameter.grad is not None and parameter.grad.any() for parameter, _ in before)
    for parameter, gradient in before:
        if keeps or gradient is None:
            parameter.grad = gradient
    if keeps:
        raise RuntimeError(
            "optimizer_zero_grad() keeps gradients, but a second pass repeats only the micro-batches of its own step: "
            "call optimizer.zero_grad() in it, and accumulate with Trainer(accumulate_grad_batches=…)."
        )


def _optimizer_step(
    plugin: Any, kind: Any, window: list[_MicroBatch], optimizer: Any, model: Any, closure: Any, **kwargs: Any
) -> Any:
    """Take the step that is due, in place of a precision plugin's method."""
    if not isinstance(model, kind) or not isinstance(optimizer, SharpnessAware):
        return type(plugin).optimizer_step(plugin, optimizer, model=model, closure=closure, **kwargs)
    check_strategy(model.trainer)
    scaler = getattr(plugin, "scaler", None)
    scaler = scaler if scaler is not None and scaler.is_enabled() else None
    if scaler is not None and not isinstance(scaler, GradScaler):
        raise RuntimeError(
            f"{type(scaler).__name__} cannot run the second pass: pass MixedPrecision(…, scaler=vsam.amp.GradScaler())."
        )
    if not model.automatic_optimization:
        return _Step(model, optimizer, scaler, closure).take(**kwargs)
    micro_batches = list(window)
    window.clear()
    if not micro_batches:  # an epoch without backward passes, such as weight averaging's for BatchNorm
        return closure()
    return _AutomaticStep(model, optimizer, scaler, closure, micro_batches).take(**kwargs)


class _Step:
    """One step of manual optimisation.

    Args:
        module: the module that is trained.
        optimizer: its optimizer itself, not Lightning's wrapper.
        scaler: what scales the losses, if anything.
        closure: runs a pass; Lightning's empty one if `opt.perturb()` was called.
    """

    def __init__(self, module: Any, optimizer: SharpnessAware, scaler: GradScaler | None, closure: Any) -> None:
        self.module, self.optimizer, self.scaler, self.closure = module, optimizer, scaler, closure
        self.trainer = module.trainer

    def take(self, **kwargs: Any) -> Any:
        """Take the step, and return the loss of the first pass. Other arguments than a closure raise an error."""
        hook = bases_of(self.optimizer.base)[0].register_step_pre_hook(self.before_base)
        try:
            if is_empty(self.closure):
                self.call_hooks()
            loss = self.optimizer.step(None if is_empty(self.closure) else self.run, scaler=self.scaler, **kwargs)
        finally:
            hook.remove()
        if self.scaler is not None and self.has_gradients():
            self.scaler.update()
        return loss

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run a pass, and hide the second from hooks and metrics."""
        loss = self.closure(*args, **kwargs)
        if self.optimizer.is_second_pass or isinstance(self.optimizer, ESAM):  # which runs backward itself
            return loss
        inverse = self.scaler.inverse_scale() if self.scaler is not None and self.has_gradients() else None
        if inverse is not None:
            self._multiply_gradients(inverse)
        self.call_hooks()
        if inverse is not None:  # the optimizer unscales them itself
            self._multiply_gradients(inverse.reciprocal())
        return loss

    @torch.no_grad()
    def _multiply_gradients(self, factor: Tensor) -> None:
        groups = self.optimizer.param_groups
        foreach.multiply_([p.grad for group in groups for p in group["params"] if p.grad is not None], factor)

    def has_gradients(self) -> bool:
        """Return whether there are gradients to step with."""
        return True

    def before_base(self, *_: object) -> None:
        """Run right before the first base steps, with the gradients that it gets."""
        if isinstance(self.optimizer, ESAM):
            self.call_hooks()

    def call_hooks(self) -> None:
        """Call `on_before_optimizer_step`."""
        call._call_callback_hooks(self.trainer, "on_before_optimizer_step", self.optimizer)
        call._call_lightning_module_hook(self.trainer, "on_before_optimizer_step", self.optimizer)


class _AutomaticStep(_Step):
    """One step of automatic optimisation.

    Args:
        module, optimizer, scaler: as above.
        last: runs the last micro-batch of the first pass.
        micro_batches: all of them.
    """

    def __init__(self, module: Any, optimizer: Any, scaler: Any, last: Any, micro_batches: list[_MicroBatch]) -> None:
        super().__init__(module, optimizer, scaler, self._run_pass)
        self._last, self._micro_batches = last, micro_batches
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self._earlier = [(p, p.grad) for p in parameters if p.grad is not None and len(micro_batches) > 1]
        for parameter, _ in self._earlier:  # the optimizer starts without gradients
            parameter.grad = None

    def has_gradients(self) -> bool:
        """Return whether a training step returned a loss."""
        return any(micro_batch.loss is not None for micro_batch in self._micro_batches)

    def _run_pass(self) -> Any:
        return self._repeat() if self.optimizer.is_second_pass else self._run_last()

    def _run_last(self) -> Any:
        """Run the last micro-batch on top of the others, and return the sum of all losses."""
        for parameter, gradient in self._earlier:
            parameter.grad = gradient
        self._last()
        losses = [micro_batch.loss for micro_batch in self._micro_batches if micro_batch.loss is not None]
        return torch.stack(losses).sum() if losses else None

    def _repeat(self) -> None:
        """Repeat all micro-batches. The last one syncs gradients."""
        block = getattr(self.trainer.strategy, "block_backward_sync", nullcontext)
        for micro_batch in self._micro_batches:
            with nullcontext() if micro_batch is self._micro_batches[-1] else block():
                if (loss := micro_batch.again()) is not None:
                    backward_without_hooks(self.module, self.optimizer, loss)

    def before_base(self, *_: object) -> None:
        """Clip the gradients that the bases get."""
        limit, algorithm = self.trainer.gradient_clip_val, self.trainer.gradient_clip_algorithm
        clip = self.trainer.precision_plugin._clip_gradients
        clip(self.module, self.optimizer, limit, gradient_clip_algorithm=algorithm)


def backward_without_hooks(module: Any, optimizer: Any, loss: Tensor, *args: Any, **kwargs: Any) -> None:
    """Run a backward pass as the trainer's strategy does, without calling hooks."""
    strategy = module.trainer.strategy
    plugin = strategy.precision_plugin
    scaler = getattr(plugin, "scaler", None)
    strategy.pre_backward(loss)
    plugin.backward(loss if scaler is None else scaler.scale(loss), module, optimizer, *args, **kwargs)
    strategy.post_backward(loss)


@contextmanager
def recorders_removed(module: nn.Module) -> Iterator[None]:
    """Take away the forward hooks of optimizers for the block."""
    hooks = [inner._forward_pre_hooks for inner in module.modules()]
    before = [dict(one) for one in hooks]
    for one, found in zip(hooks, before, strict=True):
        for key in [key for key, hook in found.items() if isinstance(hook, FirstPassRecorder)]:
            del one[key]
    try:
        yield
    finally:
        for one, found in zip(hooks, before, strict=True):
            one.clear()
            one.update(found)


def _save_metrics(module: nn.Module) -> Callable[[], None]:
    """Return a function that restores all metrics of a module. Their tensors stay the same: collections share them."""
    metrics: list[Any] = [inner for inner in module.modules() if isinstance(inner, Metric | MetricCollection)]
    attributes = [(metric, dict(vars(metric))) for metric in metrics]
    states = [found[name] for metric, found in attributes for name in getattr(metric, "_defaults", ())]
    copies: list[Any] = [state.clone() if isinstance(state, Tensor) else list(state) for state in states]

    def restore() -> None:
        for metric, found in attributes:
            vars(metric).update(found)
        for state, copy in zip(states, copies, strict=True):
            if isinstance(state, Tensor):
                state.copy_(copy)
            else:
                state[:] = copy

    return restore
