"""An optimizer around another one, whose groups and state it shares."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

__all__ = ["Wrapper"]


class Wrapper(Optimizer, ABC):
    """Behaves as `base` to schedulers, hooks and whoever looks at groups or state; saves one entry more than it."""

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
        return self.base.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The base optimizer's own defaults."""
        return self.base.defaults

    def state_dict(self) -> dict[str, Any]:
        """The base optimizer's state and the entry; loads with `weights_only=True`."""
        for prepare in self._optimizer_state_dict_pre_hooks.values():
            prepare(self)
        state_dict = {**self.base.state_dict(), self.entry: self._save()}
        for change in self._optimizer_state_dict_post_hooks.values():
            changed = change(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken; a state that does not fit changes nothing."""
        for change in self._optimizer_load_state_dict_pre_hooks.values():
            changed = change(self, state_dict)
            state_dict = state_dict if changed is None else changed
        load = self._check(state_dict)
        self.base.load_state_dict({name: value for name, value in state_dict.items() if name != self.entry})
        load()
        for finish in self._optimizer_load_state_dict_post_hooks.values():
            finish(self)

    @abstractmethod
    def _save(self) -> dict[str, Any]:
        """The entry, in plain types and tensors."""

    @abstractmethod
    def _check(self, state_dict: dict[str, Any]) -> Callable[[], None]:
        """Refuse a state that does not fit, without changing anything; returns what loads it."""

    def _parameters(self) -> Iterator[Tensor]:
        return (parameter for group in self.param_groups for parameter in group["params"])

    def _devices(self) -> set[torch.device]:
        return {parameter.device for parameter in self._parameters()}

    def _name(self, parameter: Tensor) -> str:
        names = self.model.named_parameters() if self.model is not None else ()
        known = next((name for name, candidate in names if candidate is parameter), None)
        return known or f"A parameter of shape {tuple(parameter.shape)}"
