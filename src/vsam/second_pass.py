"""The second pass as a repetition of the first: where that one started is noted, and stray passes are noticed."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from vsam.buffers import Buffers, BufferState
from vsam.caller import warn_caller
from vsam.rng import RngState

__all__ = ["ForwardNote", "LastWrite"]


class ForwardNote:
    """A forward pre-hook that notes the RNG state before the first forward pass of a step.

    On the outermost module only. Between `perturb()` and `step()` it also notices a forward pass that cannot be the
    second one. A copy of the model, or of the optimizer, starts with an empty note.
    """

    def __init__(self) -> None:
        self.rng: RngState | None = None
        self.start: BufferState | None = None
        self.buffers: Buffers | None = None
        self.watched: list[Tensor] = []
        self.first_write: LastWrite | None = None
        self._unhook: list[Callable[[], object]] = []
        self.was_called = False
        self.on_stray: Callable[[], None] | None = None
        self._is_stale = False
        self._kinds: set[tuple[bool, bool]] = set()

    @_disable_dynamo
    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Note where a step's first pass starts: at its first forward, unless that has become stale."""
        self.was_called = True
        kind = (module.training, torch.is_grad_enabled())
        if self.on_stray is not None:
            # Whatever the first pass did too, such as no_grad pseudo-labels, belongs to the second.
            if kind not in self._kinds and (not kind[1] or (self.rng is not None and not kind[0])):
                self.on_stray()
            return
        self._kinds.add(kind)
        if all(kind) and (self.rng is None or self._is_stale):
            self.rng = RngState({parameter.device for parameter in module.parameters()})
            self.start = None if self.buffers is None else self.buffers.before_first_pass()
            self._is_stale = False
            self._unwatch()
            watched = next((parameter for parameter in self.watched if parameter.requires_grad), None)
            if watched is not None:
                self.first_write = LastWrite(watched, self._unhook)

    def watch(self, model: nn.Module, abandon: Callable[[], None], way_back: list[Callable[[], object]]) -> None:
        """Between `perturb()` and `step()`, abandon the step if the model is used for anything but the second pass.

        That is a forward pass in evaluation mode or under no_grad, `model.zero_grad()`, saving or loading its state.
        Restoring ends the watch.
        """

        def on_stray() -> None:
            abandon()
            warn_caller(
                "A forward pass in evaluation mode or under no_grad ran between perturb() and step(): the weights were "
                "restored first, and the step was abandoned. Evaluate after step()."
            )

        inner = [getattr(model, name, None) for name in ("_orig_mod", "module")]  # of a compiled or distributed one
        modules = [model, *(module for module in inner if isinstance(module, nn.Module))]

        def end() -> None:
            self.on_stray = None
            for module in modules:
                _Abandoning.remove(module)

        way_back.append(end)
        self.on_stray = on_stray
        for module in modules:
            module.__dict__.update((name, _Abandoning(module, name, abandon)) for name in _Abandoning.names)

    def mark_stale(self) -> None:
        """Gradients were cleared: if another forward pass follows before the step, that one counts."""
        self._is_stale = True

    def forget(self) -> None:
        """The step has ended."""
        self.rng = self.start = self.on_stray = self.first_write = None
        self._kinds.clear()
        if self._unhook:
            self._unwatch()

    def _unwatch(self) -> None:
        while self._unhook:
            self._unhook[-1]()
            self._unhook.pop()
        self.first_write = None

    @property
    def num_backwards(self) -> int:
        """How many backward passes the first pass had; 0 if unknown."""
        return 0 if self.first_write is None else self.first_write.count

    def watch_second(self, parameter: Tensor, way_back: list[Callable[[], object]]) -> "LastWrite":
        """Watch the gradient of the second pass: the same as in the first one, if that was watched."""
        first = self.first_write
        self._unwatch()
        self.first_write = first  # its count is compared at the end
        if first is not None and first.count > 0 and first.parameter.requires_grad:
            parameter = first.parameter
        return LastWrite(parameter, way_back)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ForwardNote":
        return ForwardNote()

    def __reduce__(self) -> tuple[type["ForwardNote"], tuple[()]]:
        return ForwardNote, ()


class _Abandoning:
    """A method of a model while a second pass is due: it first abandons the step. Copies get the ordinary one."""

    names = ("zero_grad", "state_dict", "load_state_dict", "__deepcopy__")

    def __init__(self, model: nn.Module, name: str, abandon: Callable[[], None]) -> None:
        self._model, self._name, self._abandon = model, name, abandon
        self._own = model.__dict__.get(name)  # people also set methods on a model itself

    @classmethod
    def remove(cls, model: nn.Module) -> None:
        """Uncover what was there before."""
        for name in cls.names:
            found = model.__dict__.get(name)
            if isinstance(found, cls):
                del model.__dict__[name]
                if found._own is not None:
                    model.__dict__[name] = found._own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._abandon()
        own = self._own or _ordinary(self._model, self._name)
        return own(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _ordinary, (self._model, self._name)


def _ordinary(model: nn.Module, name: str) -> Callable[..., Any]:
    return partial(_copied, model) if name == "__deepcopy__" else partial(getattr(type(model), name), model)


def _copied(model: nn.Module, memo: dict[int, Any]) -> Any:
    for name in _Abandoning.names:  # left by a pickle of a model in the second pass
        model.__dict__.pop(name, None)
    return copy.deepcopy(model, memo)


class LastWrite:
    """Notices if a gradient was changed between the last backward pass and the step, for example by clipping.

    It also counts the backward passes whose gradients were added up. Off in distributed runs, which write to gradients
    after the backward pass themselves.
    """

    def __init__(self, parameter: Tensor, way_back: list[Callable[[], object]]) -> None:
        self.parameter, self.count = parameter, 0
        self._version, self._address = -1, 0
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            way_back.append(parameter.register_post_accumulate_grad_hook(self._note).remove)  # type: ignore[no-untyped-call]

    def _note(self, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is None:
            return
        was_added = id(gradient) == self._address and gradient._version == self._version + 1
        self.count = self.count + 1 if was_added else 1
        self._version, self._address = gradient._version, id(gradient)

    @property
    def was_changed(self) -> bool:
        """Whether the gradient differs from what the backward pass left."""
        gradient = self.parameter.grad
        return self._version >= 0 and gradient is not None and gradient._version != self._version
