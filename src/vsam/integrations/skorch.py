"""skorch: a mixin that gives a net's optimizer its base and its model, and hides the second pass from callbacks."""

from contextlib import suppress
from typing import Any

import torch
from skorch.callbacks import GradientNormClipping
from torch import nn

from vsam.methods import ESAM
from vsam.optimizer import SharpnessAware

__all__ = ["SharpnessAwareNet"]


class SharpnessAwareNet:
    """A mixin before `NeuralNetClassifier` or another net of skorch, for sharpness-aware optimizers.

    `optimizer` is a class of ours and takes its settings as usual, such as `optimizer__budget=0.2`. `optimizer__base`
    is the class of the base optimizer, by default SGD as in skorch, and `optimizer__base__momentum=0.9` one of its
    settings. `lr` and `optimizer__param_groups` belong to the base. The net passes `model=` itself and, to methods
    that need it, the length of the run. `on_grad_computed` sees the first pass only. With other optimizers nothing
    changes.

    Example:
        >>> class Net(SharpnessAwareNet, NeuralNetClassifier):
        ...     pass
        >>> net = Net(Module, optimizer=vsam.VSAM, optimizer__budget=0.2, lr=0.05)
    """

    optimizer: Any
    optimizer_: Any
    _modules: list[str]
    _criteria: list[str]

    @property
    def is_second_pass(self) -> bool:
        """True during the second pass, so that a `get_loss` that counts something can skip it."""
        optimizer = self._sharpness_aware()
        return optimizer is not None and optimizer.is_second_pass

    def initialize_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Create the optimizer: around its base, with the net's modules as its model."""
        method: Any = self.optimizer
        if not (isinstance(method, type) and issubclass(method, SharpnessAware)):
            return super().initialize_optimizer(*args, **kwargs)  # type: ignore[misc]
        if issubclass(method, ESAM):
            raise ValueError("ESAM needs per-sample losses, which a net of skorch does not compute: use SAM or VSAM.")
        net: Any = self
        groups, settings = net.get_params_for_optimizer("optimizer", net.get_all_learnable_params())
        of_base = {name: settings.pop(name) for name in list(settings) if name.startswith("base__")}
        kind = settings.pop("base", torch.optim.SGD)
        base = kind(*groups, **{"lr": settings.pop("lr"), **{k.removeprefix("base__"): v for k, v in of_base.items()}})
        self.optimizer_ = method(base, model=self._model(), **settings)
        return self

    def set_params(self, **kwargs: Any) -> Any:
        """Set parameters of the net. Settings of an existing optimizer that are not in its groups raise an error."""
        optimizer = self._sharpness_aware()
        groups = [] if optimizer is None else optimizer.param_groups
        for name in kwargs:
            setting = name.removeprefix("optimizer__")
            if groups and setting not in (name, *groups[0]) and not setting.startswith("param_groups__"):
                raise ValueError(
                    f"{name} cannot be changed in a net with an optimizer: write "
                    f"sklearn.base.clone(net).set_params({name}=…), which trains anew."
                )
        return super().set_params(**kwargs)  # type: ignore[misc]

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **kwargs: Any) -> Any:
        """Train for some epochs."""
        net: Any = self
        clips = any(isinstance(one, GradientNormClipping) for _, one in net.callbacks_)
        if clips and self._sharpness_aware() is not None:
            raise ValueError(
                "GradientNormClipping would clip each of the two gradients whose difference is the PSF: write "
                "optimizer__max_grad_norm=1.0 in its place."
            )
        self.num_epochs_ = net.max_epochs if epochs is None else epochs
        return super().fit_loop(X, y, epochs, **kwargs)  # type: ignore[misc]

    def run_single_epoch(self, iterator: Any, training: bool, *args: Any, **kwargs: Any) -> Any:
        """Run an epoch. Before the first step, tell the optimizer the length of the run."""
        optimizer = self._sharpness_aware()
        if training and optimizer is not None and optimizer.last is None:
            length = 0
            with suppress(TypeError):  # the length of the data is unknown
                length = len(iterator)
            if length:
                optimizer.set_total_steps(optimizer._records.num_steps + self.num_epochs_ * length)
        return super().run_single_epoch(iterator, training, *args, **kwargs)  # type: ignore[misc]

    def notify(self, method_name: str, **kwargs: Any) -> None:
        """Call the callbacks, in the first pass only."""
        if not self.is_second_pass:
            super().notify(method_name, **kwargs)  # type: ignore[misc]

    def _model(self) -> nn.Module:
        """Return what a pass runs: the module, or all modules and criteria that have a state."""
        found = [getattr(self, f"{name}_") for name in (*self._modules, *self._criteria)]
        modules = [one for one in found if isinstance(one, nn.Module) and one.state_dict()]
        return modules[0] if len(modules) == 1 else nn.ModuleList(modules)

    def _sharpness_aware(self) -> SharpnessAware | None:
        """Return the net's optimizer, if it exists and is sharpness-aware."""
        optimizer = self.__dict__.get("optimizer_")
        return optimizer if isinstance(optimizer, SharpnessAware) else None
