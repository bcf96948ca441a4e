"""Lightning: a mixin that makes its loops run both passes of a step, and hides the second from logs and hooks."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers.logger import DummyLogger
from torch import Tensor
from torch._compile import _disable_dynamo

from vsam.integrations.lightning_steps import backward_without_hooks, install, recorders_removed
from vsam.optimizer import SharpnessAware

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
else:
    LightningModule = object  # whichever comes after the mixin, that of pytorch_lightning too

__all__ = ["SharpnessAwareModule"]


class SharpnessAwareModule(LightningModule):
    """A mixin before `LightningModule` that makes Lightning's loops run both passes of a sharpness-aware step.

    In automatic optimisation all micro-batches of `accumulate_grad_batches` are repeated at `w + e`, each with the
    random numbers of its first pass; `gradient_clip_val` and `configure_gradient_clipping` clip the gradient that the
    base optimizer gets; 16-mixed scales both passes. `self.log`, `self.logger`, torchmetrics that are attributes of the
    module, `on_before_backward`, `on_after_backward` and `on_before_optimizer_step` see the first pass only. The length
    of the run is set for methods that need it. With other optimizers nothing changes.

    Cost: one pass per step, two at a sampled step. The micro-batches of a step stay in memory until it is done; a
    sampled step also copies the metrics' states.

    Example:
        >>> class Net(SharpnessAwareModule, LightningModule):
        ...     def training_step(self, batch):
        ...         loss = self.criterion(self.network(batch[0]), batch[1])
        ...         self.log("loss", loss)
        ...         return loss
        ...
        ...     def configure_optimizers(self):
        ...         base = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        ...         return vsam.VSAM(base, model=self, budget=0.2)
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        before = cls.__mro__[: cls.__mro__.index(SharpnessAwareModule)]
        if any(base.__name__ == "LightningModule" for base in before):
            fixed = f"class {cls.__name__}(SharpnessAwareModule, LightningModule)"
            raise TypeError(f"SharpnessAwareModule must come before LightningModule, which it extends: write {fixed}.")
        unused = getattr(cls, "__jit_unused_properties__", ())
        cls.__jit_unused_properties__ = [*unused, "is_second_pass"]  # TorchScript cannot compile it

    @property
    def is_second_pass(self) -> bool:
        """True during the second pass, for a training step that does more than compute a loss."""
        optimizers = self._trainer.optimizers if self._trainer is not None else []
        return any(isinstance(one, SharpnessAware) and one.is_second_pass for one in optimizers)

    @property
    def trainer(self) -> "Trainer":
        """The trainer. Once attached, its loops handle the second pass."""
        return super().trainer

    @trainer.setter
    def trainer(self, trainer: "Trainer | None") -> None:
        super(SharpnessAwareModule, type(self)).trainer.fset(self, trainer)  # type: ignore[attr-defined]
        if trainer is not None:
            install(trainer, SharpnessAwareModule)

    @property
    def logger(self) -> Any:
        """The trainer's logger. In the second pass a dummy that writes nothing."""
        return DummyLogger() if self.is_second_pass else super().logger

    @property
    def loggers(self) -> list[Any]:
        """The trainer's loggers. In the second pass none."""
        return [] if self.is_second_pass else super().loggers

    @_disable_dynamo
    def log(self, *args: Any, **kwargs: Any) -> None:
        """Log a value, in the first pass only."""
        if not self.is_second_pass:
            super().log(*args, **kwargs)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print on the first process, in the first pass only."""
        if not self.is_second_pass:
            super().print(*args, **kwargs)

    def to_torchscript(self, *args: Any, **kwargs: Any) -> Any:
        """Export the module, without the optimizer's forward hook, which TorchScript cannot compile."""
        with recorders_removed(self):
            return super().to_torchscript(*args, **kwargs)

    def manual_backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Run a backward pass in manual optimisation. Hooks see the first pass only."""
        if self.is_second_pass:
            backward_without_hooks(self, None, loss, *args, **kwargs)
        else:
            super().manual_backward(loss, *args, **kwargs)

    def clip_gradients(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip the gradient that the base optimizer gets. In manual optimisation, call it before `opt.step()`."""
        clip: Callable[..., None] = super().clip_gradients
        if not isinstance(optimizer, SharpnessAware):
            clip(optimizer, gradient_clip_val, gradient_clip_algorithm)
        elif self.automatic_optimization:
            # The gradients are unscaled; Lightning assumes otherwise for optimizers that support AMP scaling.
            clip(SimpleNamespace(param_groups=optimizer.param_groups), gradient_clip_val, gradient_clip_algorithm)
        elif gradient_clip_algorithm == "value":
            raise ValueError("gradient_clip_algorithm must be 'norm' in manual optimisation: 'value' clips gs alone.")
        elif gradient_clip_val:
            optimizer.clip_grad_norm_(gradient_clip_val)
