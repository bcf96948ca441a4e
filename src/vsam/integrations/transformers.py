"""Transformers' Trainer with the second pass: all micro-batches of a step are repeated at the perturbed weights."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn
from transformers import Trainer

from vsam._step.replay import RngState
from vsam.integrations.accelerate import adopt, syncs_each_batch
from vsam.methods import ESAM
from vsam.optimizer import SharpnessAware
from vsam.parts import KnowsLength

__all__ = ["SharpnessAwareMixin", "SharpnessAwareTrainer"]


class MicroBatch(NamedTuple):
    """One micro-batch of a step, and what is needed to repeat it."""

    inputs: Any
    num_items: Any
    rng: RngState


class SharpnessAwareMixin:
    """A mixin before a subclass of `transformers.Trainer` that lets it train with sharpness-aware optimizers.

    The second pass repeats the `training_step` of every micro-batch, with the same dropout, inside the last one of the
    first pass. So losses, token counts and callbacks are those of the first pass; `max_grad_norm` clips the gradient
    that the base optimizer gets; the weights are restored before `training_step` returns. `log` does nothing in the
    second pass; a `compute_loss` that counts something itself can check `self.is_second_pass`. With other optimizers
    nothing changes.

    Pass optimizers as usual, by `optimizers=(optimizer, scheduler)`, or as a class:
    `optimizer_cls_and_kwargs=(vsam.VSAM, {"budget": 0.2})` wraps the optimizer that the training arguments name, and
    `{"budget": 0.2, "base": (torch.optim.SGD, {"lr": 0.1})}` one of your own, with the trainer's two parameter groups.
    Methods that need the length of the run get it from the trainer, unless `total_steps` is given.

    Cost: at a sampled step one more pass over its micro-batches, which are kept until then.

    Example:
        >>> class MyTrainer(SharpnessAwareMixin, Seq2SeqTrainer):
        ...     pass
    """

    accelerator: Any
    args: Any
    model: Any
    state: Any
    optimizer: Any
    optimizer_cls_and_kwargs: Any
    _micro_batches: list[MicroBatch] | None = None
    """Those whose gradients have been accumulated since the last step."""
    _total_steps: int | None = None
    """The length of the run that was filled in."""
    _needs_length = True

    @property
    def is_second_pass(self) -> bool:
        """True during the second pass, so that a `compute_loss` that counts something can skip it."""
        optimizer = self._sharpness_aware()
        return optimizer is not None and optimizer.is_second_pass

    def create_accelerator_and_postprocess(self) -> None:
        """Create the accelerator, and make it handle the second pass."""
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        adopt(self.accelerator)

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        """Create the optimizer if none was passed. A method of ours wraps its base."""
        self._needs_length = True  # a run starts, or starts again with smaller batches
        chosen = self.optimizer_cls_and_kwargs
        is_ours = chosen is not None and isinstance(chosen[0], type) and issubclass(chosen[0], SharpnessAware)
        if self.optimizer is not None or not is_ours:
            super().create_optimizer(model)  # type: ignore[misc]
        else:
            method, settings = chosen[0], dict(chosen[1])
            self.optimizer_cls_and_kwargs = _checked_base(settings.pop("base", None))
            try:
                base = super().create_optimizer(model)  # type: ignore[misc]
            finally:
                self.optimizer_cls_and_kwargs, self.optimizer = chosen, None
            settings.setdefault("model", self.model if model is None else model)
            sync = settings.pop("sync", "global")
            self.optimizer = method(base, sync="global" if sync == "rank" else sync, **settings)
            self.optimizer.sync = sync  # the constructor refuses "rank" until there is a DDP module
        if isinstance(self._sharpness_aware(), ESAM):
            raise ValueError("ESAM needs per-sample losses, which a Trainer does not compute: use SAM or VSAM.")
        saves = self.args.save_strategy != "no" and not self.args.save_only_model
        if self._sharpness_aware() is not None and self.accelerator.is_fsdp2 and saves:
            raise ValueError(
                "The Trainer's checkpoints under FSDP2 drop the PSF, counters and generators: set save_only_model=True "
                "and save vsam.distributed.StatefulOptimizer(model, optimizer)."
            )
        return self.optimizer

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None, **kwargs: Any
    ) -> Tensor:
        """Run the first pass of a micro-batch. After the last one of a sampled step, the second pass of all."""
        run: Callable[..., Tensor] = super().training_step  # type: ignore[misc]
        optimizer = self._sharpness_aware()
        if optimizer is None:
            return run(model, inputs, num_items_in_batch, **kwargs)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if self._needs_length:
            self._fill_in_length(optimizer)
        if self._micro_batches is None or all(parameter.grad is None for parameter in parameters):
            self._micro_batches = []  # an interrupted step is not repeated
        rng = RngState({parameter.device for parameter in model.parameters()})
        self._micro_batches.append(MicroBatch(copy.copy(inputs), num_items_in_batch, rng))
        with self.optimizer.no_sync():  # the optimizer's own, for sync="rank"
            loss = run(model, inputs, num_items_in_batch, **kwargs)
        if self.accelerator.sync_gradients:
            micro_batches, self._micro_batches = self._micro_batches, None
            if self.optimizer.perturb():
                self._repeat(optimizer, model, micro_batches, kwargs)
        return loss

    def log(self, *args: Any, **kwargs: Any) -> None:
        """Log, in the first pass only."""
        if not self.is_second_pass:
            super().log(*args, **kwargs)  # type: ignore[misc]

    def _fill_in_length(self, optimizer: SharpnessAware) -> None:
        """Set the length of the run: the steps that the optimizer has taken, and those to come."""
        if isinstance(optimizer.when, KnowsLength) and optimizer.when.total_steps == self._total_steps:
            optimizer.when.total_steps = None  # filled in by an earlier run
        self._total_steps = optimizer._records.num_steps + self.state.max_steps - self.state.global_step
        optimizer.set_total_steps(self._total_steps)
        self._needs_length = False

    def _repeat(self, optimizer: SharpnessAware, model: nn.Module, micro_batches: Any, kwargs: dict[str, Any]) -> None:
        try:
            for i, (inputs, num_items, rng) in enumerate(micro_batches, start=1):
                rng.restore()
                syncs = i == len(micro_batches) or syncs_each_batch(self.accelerator)
                with nullcontext() if syncs else self.accelerator.no_sync(model):
                    super().training_step(model, inputs, num_items, **kwargs)  # type: ignore[misc]
        except BaseException:
            optimizer.zero_grad()  # restores the weights, in case the caller retries with a smaller batch
            raise
        optimizer._end_second_pass()

    def _sharpness_aware(self) -> SharpnessAware | None:
        """Return the trainer's optimizer, if it is sharpness-aware."""
        optimizer = self.optimizer
        while isinstance(optimizer, AcceleratedOptimizer):
            optimizer = optimizer.optimizer
        return optimizer if isinstance(optimizer, SharpnessAware) else None


class SharpnessAwareTrainer(SharpnessAwareMixin, Trainer):  # type: ignore[misc]
    """`transformers.Trainer` for sharpness-aware optimizers. All arguments are the Trainer's.

    Example:
        >>> method = (vsam.VSAM, {"budget": 0.2})
        >>> trainer = SharpnessAwareTrainer(model, arguments, train_dataset=dataset, optimizer_cls_and_kwargs=method)
        >>> trainer.train()
    """


def _checked_base(base: Any) -> tuple[Any, dict[str, Any]] | None:
    """Return the base optimizer's class and settings, None for the one that the training arguments name."""
    if base is None:
        return None
    if isinstance(base, tuple | list) and len(base) == 2 and isinstance(base[1], dict):
        return base[0], dict(base[1])
    got = base.__name__ if isinstance(base, type) else type(base).__name__
    raise ValueError(
        f'base must be a class and its settings, got {got}: write "base": (torch.optim.SGD, {{"lr": 0.1}}), or pass a '
        "constructed optimizer as optimizers=."
    )
