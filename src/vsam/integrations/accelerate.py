"""Accelerate's loops: an `Accelerator` that runs the second pass, and a step over several micro-batches."""

import gc
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property
from typing import Any

import accelerate
import torch
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import DistributedType
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from vsam.amp import GradScaler
from vsam.optimizer import SharpnessAware
from vsam.parts import KnowsLength

__all__ = ["Accelerator", "PreparedOptimizer", "adopt", "step", "syncs_each_batch"]

_EXAMPLE = """
    def closure(batch):
        loss = loss_of(model, batch)
        accelerator.backward(loss)
        return loss
    step(accelerator, optimizer, [functools.partial(closure, batch) for batch in micro_batches])"""

_LENGTH = (
    "accelerate does not know the number of epochs. After prepare(), write "
    "optimizer.set_total_steps(num_epochs * math.ceil(len(loader) / accelerator.gradient_accumulation_steps))."
)


class PreparedOptimizer(AcceleratedOptimizer):  # type: ignore[misc]
    """A sharpness-aware optimizer prepared by an `Accelerator`.

    Like every prepared optimizer it steps only when gradients are synced. `step(closure)` returns the loss,
    `step_was_skipped` is correct with a scaler, and the optimizer's own attributes are passed through:
    `clip_grad_norm_`, `num_samples`, `last`, `subscribe` …

    Accelerate does not know the length of the run. For a method that needs it, call `set_total_steps` after `prepare`,
    when `len(loader)` counts the batches of one process.
    """

    optimizer: SharpnessAware
    scaler: GradScaler | None
    _num_waiting = 0
    """Backward passes of the micro-batches before the one that syncs gradients."""
    _num_repeated = 0
    """Backward passes at the perturbed weights."""

    @cached_property
    def _ddp(self) -> list[DistributedDataParallel]:
        """The DDP modules of its parameters. Accelerate keeps no list of them."""
        own = {parameter for group in self.param_groups for parameter in group["params"]}
        candidates = [thing for thing in gc.get_objects() if issubclass(type(thing), DistributedDataParallel)]
        return [module for module in candidates if not own.isdisjoint(module.parameters())]

    def introduce(self) -> None:
        """Set the optimizer's model to its DDP module, constructed after it, so that disagreeing ranks are noticed.

        Raises if the method needs the length of the run and does not know it.
        """
        optimizer = self.optimizer
        if isinstance(optimizer.when, KnowsLength) and optimizer.when.total_steps is None:
            raise ValueError(f"{optimizer.when!r} needs the length of the run: {_LENGTH}")
        is_unknown = optimizer.model is not None and not optimizer._ranks.groups
        if self.accelerator_state.num_processes > 1 and is_unknown and self._ddp:
            optimizer.model = self._ddp[0]

    def no_sync(self) -> AbstractContextManager[None]:
        """With `sync="rank"` in a loop without a closure: the context of the first forward and backward pass."""
        self.introduce()
        return self.optimizer.no_sync()

    def perturb(self) -> bool:
        """After the first backward pass: perturb the weights if this step is sampled, and return whether it is.

        False at micro-batches without a step. If True, the second pass must repeat all micro-batches of the step.
        """
        if not self.gradient_state.sync_gradients:
            return False
        self.introduce()
        self._num_repeated = 0
        return self.scaler.perturb(self.optimizer) if self.scaler is not None else bool(self.optimizer.perturb())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step if gradients are synced. Returns the loss of the first pass, if there is a closure."""
        if not self.gradient_state.sync_gradients:
            if closure is not None:
                raise RuntimeError(
                    "step(closure) was called for a micro-batch without a step, in accelerator.accumulate(), and could "
                    f"not repeat the others. Pass all of them to one call, outside of it:{_EXAMPLE}"
                )
            return None
        self.introduce()
        num_micro_batches, self._num_waiting = self._num_waiting + 1, 0
        if self.optimizer.is_second_pass and 0 < self._num_repeated < num_micro_batches:
            raise RuntimeError(
                f"The first pass ran {num_micro_batches} micro-batches and the second one {self._num_repeated}: repeat "
                f"all micro-batches after perturb() returns True, or write:{_EXAMPLE}"
            )
        if self.scaler is None:
            return self.optimizer.step(closure)
        loss = self.scaler.step(self.optimizer, closure)
        self.scaler.update()
        self._is_overflow = self.optimizer.last is not None and self.optimizer.last.skipped
        return loss

    def count_backward(self) -> None:
        """Count a backward pass, to notice a second pass that leaves out micro-batches."""
        if self.optimizer.is_second_pass:
            self._num_repeated += 1
        elif not self.gradient_state.sync_gradients:
            self._num_waiting += 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "optimizer":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.optimizer, name)


class Accelerator(accelerate.Accelerator):  # type: ignore[misc]
    """`accelerate.Accelerator` whose prepared optimizers have `perturb()`, and whose scaler unscales both passes.

    `clip_grad_norm_`, called where accelerate's scripts call it, clips the gradient that the base optimizer gets. Other
    optimizers work as usual. All arguments are accelerate's.

    Cost: none of its own.

    Example:
        >>> accelerator = Accelerator()
        >>> method = vsam.VSAM(base, model=model, budget=0.2)
        >>> model, optimizer, loader = accelerator.prepare(model, method, loader)
        >>> for inputs, targets in loader:
        ...     optimizer.zero_grad()
        ...     accelerator.backward(criterion(model(inputs), targets))
        ...     if optimizer.perturb():
        ...         accelerator.backward(criterion(model(inputs), targets))
        ...     accelerator.clip_grad_norm_(model.parameters(), 1.0)
        ...     optimizer.step()
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        adopt(self)

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None) -> Any:
        """Wrap an optimizer. A sharpness-aware one becomes a `PreparedOptimizer`."""
        prepared = super().prepare_optimizer(optimizer, device_placement)
        _adopt_optimizer(self, prepared)
        return prepared

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        """Scale the loss as accelerate does, and run its backward pass."""
        super().backward(loss, **kwargs)
        for prepared in self._optimizers:
            if isinstance(prepared, PreparedOptimizer):
                prepared.count_backward()

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> Any:
        """Clip gradients. Those of a sharpness-aware optimizer are clipped right before its base optimizer steps.

        Returns their norm before clipping.
        """
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        prepared = self._owner(parameters, "clip_grad_norm_")
        if prepared is None:
            return super().clip_grad_norm_(parameters, max_norm, norm_type)
        if norm_type != 2:
            raise ValueError(f"norm_type must be 2 for a sharpness-aware optimizer, got {norm_type}.")
        return prepared.optimizer.clip_grad_norm_(max_norm)

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Clip gradients element by element. Raises for those of a sharpness-aware optimizer."""
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if self._owner(parameters, "clip_grad_value_") is not None:
            raise RuntimeError("clip_grad_value_() would clip the second gradient only: call clip_grad_norm_().")
        super().clip_grad_value_(parameters, clip_value)

    def _owner(self, parameters: list[Tensor], caller: str) -> PreparedOptimizer | None:
        """Return the sharpness-aware optimizer of these parameters, if any. Raise unless they are exactly its own."""
        given = {parameter for parameter in parameters if parameter.grad is not None}
        for prepared in self._optimizers:
            own = {p for group in prepared.param_groups for p in group["params"] if p.grad is not None}
            if isinstance(prepared, PreparedOptimizer) and given & own:
                if given != own:
                    raise ValueError(
                        f"{caller}() must get all parameters of a sharpness-aware optimizer and no others, got "
                        f"{len(given & own)} of its {len(own)} and {len(given - own)} others."
                    )
                return prepared
        return None


def adopt(accelerator: accelerate.Accelerator) -> Accelerator:
    """Make an existing accelerator handle the second pass. It stays the same object."""
    if not isinstance(accelerator, accelerate.Accelerator):
        raise ValueError(f"accelerator must be an accelerate.Accelerator, got {type(accelerator).__name__}.")
    if not isinstance(accelerator, Accelerator):
        kind = type(accelerator)  # a user-defined class comes after ours in the MRO
        is_plain = kind is accelerate.Accelerator
        accelerator.__class__ = Accelerator if is_plain else type(kind.__name__, (Accelerator, kind), {})
    scaler = accelerator.scaler
    if type(scaler) in (torch.amp.GradScaler, torch.cuda.amp.GradScaler):
        scaler.__class__ = GradScaler  # adds methods only, and all references to the scaler stay valid
    for prepared in accelerator._optimizers:
        _adopt_optimizer(accelerator, prepared)
    assert isinstance(accelerator, Accelerator)
    return accelerator


def _adopt_optimizer(accelerator: Accelerator, prepared: AcceleratedOptimizer) -> None:
    if isinstance(prepared, PreparedOptimizer) or not isinstance(prepared.optimizer, SharpnessAware):
        return
    kind = accelerator.distributed_type
    name = "FSDP1" if kind is DistributedType.FSDP and not accelerator.is_fsdp2 else kind.value
    if name in ("DEEPSPEED", "MEGATRON_LM", "XLA", "FSDP1"):
        raise RuntimeError(f"vsam cannot step under {name}, which steps by itself: use one process, DDP or FSDP2.")
    if prepared.scaler is not None and not isinstance(prepared.scaler, GradScaler):
        raise RuntimeError(f"{type(prepared.scaler).__name__} cannot run the second pass: train with bf16.")
    prepared.__class__ = PreparedOptimizer


def step(accelerator: accelerate.Accelerator, optimizer: Any, closures: Sequence[Callable[[], Any]]) -> Any:
    """Take one step of a prepared optimizer over several micro-batches. Returns their mean loss in the first pass.

    At a sampled step all of them are repeated at w + e. Each pass syncs gradients once, at its last micro-batch.

    Args:
        accelerator: accelerate's or ours; call this outside of `accelerator.accumulate()`.
        optimizer: what `accelerator.prepare` made of a sharpness-aware optimizer.
        closures: one function per micro-batch: it computes the loss, calls `accelerator.backward(loss)`, which divides
            by the accelerator's `gradient_accumulation_steps` as always, and returns the loss.

    Cost: one pass over all micro-batches, two at a sampled step.

    Example:
        >>> def closure(batch):
        ...     loss = criterion(model(batch[0]), batch[1])
        ...     accelerator.backward(loss)
        ...     return loss
        >>> loss = step(accelerator, optimizer, [partial(closure, batch) for batch in micro_batches])
    """
    accelerator = adopt(accelerator)
    if not isinstance(optimizer, PreparedOptimizer):
        got = type(getattr(optimizer, "optimizer", optimizer)).__name__
        raise ValueError(
            f"optimizer must be a sharpness-aware optimizer prepared by this accelerator, got {got}. Write "
            "model, optimizer = accelerator.prepare(model, vsam.VSAM(base, model=model, budget=0.2))."
        )
    closures = _checked(closures)

    def closure() -> Any:
        losses = []
        for i, run in enumerate(closures):
            with nullcontext() if i + 1 == len(closures) else _without_sync(accelerator, optimizer):
                loss = run()
            if not isinstance(loss, Tensor):
                raise ValueError(f"closures must return the loss, got {type(loss).__name__} from closures[{i}].")
            losses.append(loss.detach())
        return torch.stack(losses).mean()

    optimizer._opt_called = True  # a scheduler checks this, and may have wrapped the earlier `step`
    return PreparedOptimizer.step(optimizer, closure)


def syncs_each_batch(accelerator: accelerate.Accelerator) -> bool:
    """Return whether the user wants gradients synced at every micro-batch, which saves memory."""
    return bool(accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False))


def _without_sync(accelerator: accelerate.Accelerator, optimizer: PreparedOptimizer) -> ExitStack:
    """Return a context whose backward passes do not sync gradients across processes."""
    stack = ExitStack()
    if accelerator.use_distributed and not syncs_each_batch(accelerator):
        for model in accelerator._models if accelerator.is_fsdp2 else optimizer._ddp:
            stack.enter_context(accelerator.no_sync(model))
    return stack


def _checked(closures: Any) -> list[Callable[[], Any]]:
    found: list[Any] = [*closures] if isinstance(closures, Iterable) else []
    if not found or not all(map(callable, found)):
        raise ValueError(f"closures must list one function per micro-batch, got {closures!r:.60}. Write:{_EXAMPLE}")
    if len({_identity(closure) for closure in found}) < len(found):
        raise ValueError(
            "closures must be of different micro-batches, got two functions of the same variables, which would all use "
            f"the last batch. Bind each batch:{_EXAMPLE}"
        )
    return found


def _identity(closure: Any) -> Any:
    """Return a key that is equal for functions that must do the same."""
    if not hasattr(closure, "__code__") or hasattr(closure, "__self__"):
        return id(closure)
    cells = tuple(map(id, closure.__closure__ or ()))
    defaults = (*(closure.__defaults__ or ()), *(closure.__kwdefaults__ or {}).values())
    return closure.__code__, cells, tuple(map(id, defaults))
