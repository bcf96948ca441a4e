"""An optimizer around another one, whose groups and state it shares."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from vsam.bases import keep_bases

__all__ = ["Wrapper", "itself", "with_own_hooks"]


def itself(optimizer: Any) -> Any:
    """The optimizer itself, also if given a proxy that borrows its class, as Lightning and Fabric make them.

    Such a proxy reads the optimizer's attributes, but what is set on it never reaches the optimizer.
    """
    return optimizer.__dict__.get("_optimizer", optimizer)


def with_own_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Run this optimizer's own step hooks around `step`, which runs without gradients and is not compiled.

    Torch would also run its global optimizer hooks here; they run once, in the base optimizer's step.
    """

    @_disable_dynamo  # like torch.compiler.disable, which would import the compiler before it is needed
    @wraps(step)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        for before in self._optimizer_step_pre_hooks.values():
            changed = before(self, args, kwargs)
            args, kwargs = (args, kwargs) if changed is None else changed
        had_gradients = torch.is_grad_enabled()
        try:
            try:
                torch._C._set_grad_enabled(False)
                result = step(*args, **kwargs)
            finally:
                torch._C._set_grad_enabled(had_gradients)
        finally:  # again, in case Ctrl-C arrived right there
            torch._C._set_grad_enabled(had_gradients)
        for after in self._optimizer_step_post_hooks.values():
            after(self, args, kwargs)
        return result

    hooked.hooked = True  # type: ignore[attr-defined] # tells torch that there is nothing left to wrap
    return hooked


class Wrapper(Optimizer, ABC):
    """Behaves like `base` to schedulers, hooks and anything that reads groups or state; saves one extra entry."""

    base: Optimizer
    model: nn.Module | None

    entry: str
    """The name of that entry."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The base optimizer's own groups."""
        return self.base.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The base optimizer's own state."""
        # Torch's checkpoint functions read this before any change, also through a trainer's wrapper.
        _refuse_incomplete_checkpoint(self.entry, depth=2)
        return self.base.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The base optimizer's own defaults."""
        return self.base.defaults

    def __getattr__(self, name: str) -> Any:
        """Attributes that only the base optimizer has, such as `train` and `eval` of a schedule-free one."""
        base = self.__dict__.get("base")
        if base is None or name.startswith("_") or not hasattr(base, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(base, name)

    def state_dict(self) -> dict[str, Any]:
        """The base optimizer's state and the entry; loads with `weights_only=True`."""
        self = itself(self)
        _refuse_incomplete_checkpoint(self.entry, depth=4)  # there may be another wrapper in between
        for prepare in self._optimizer_state_dict_pre_hooks.values():
            prepare(self)
        state_dict = {**self.base.state_dict(), self.entry: self._save()}
        for change in self._optimizer_state_dict_post_hooks.values():
            changed = change(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume exactly where `state_dict` was taken; a state that does not fit changes nothing."""
        self = itself(self)
        for change in self._optimizer_load_state_dict_pre_hooks.values():
            changed = change(self, state_dict)
            state_dict = state_dict if changed is None else changed
        restore = keep_bases(self.base)
        try:
            load = self._check(state_dict)
            self.base.load_state_dict({name: value for name, value in state_dict.items() if name != self.entry})
        except BaseException as error:
            restore()
            if isinstance(error, AttributeError | KeyError | RuntimeError | TypeError):
                raise ValueError(f"state_dict is damaged or from another optimizer: {error!r}.") from error
            raise
        load()
        for finish in self._optimizer_load_state_dict_post_hooks.values():
            finish(self)

    @abstractmethod
    def _save(self) -> dict[str, Any]:
        """The entry, in plain types and tensors."""

    @abstractmethod
    def _check(self, state_dict: dict[str, Any]) -> Callable[[], None]:
        """Refuse a state that does not fit, without changing anything; returns a function that loads it."""


def _refuse_incomplete_checkpoint(entry: str, depth: int) -> None:
    """Refuse torch's functions that save only the state and the groups of an optimizer and drop the rest."""
    frame = sys._getframe(2)
    for _ in range(depth):
        if frame.f_globals.get("__name__") == "torch.distributed.checkpoint.state_dict":
            raise RuntimeError(
                f"get_optimizer_state_dict and set_optimizer_state_dict drop the optimizer's {entry!r} entry: PSF, "
                "counters and generators. Save and load with torch.distributed.checkpoint like this: "
                "dcp.save({'optimizer': vsam.distributed.StatefulOptimizer(model, optimizer)}, checkpoint_id=…)."
            )
        if frame.f_back is None:
            return
        frame = frame.f_back
