"""The second pass as a repetition of the first: it leaves the model's buffers alone, and stray passes are noticed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.nn.modules.batchnorm import _NormBase

from vsam import tensors
from vsam.caller import warn_caller
from vsam.rng import RngState

__all__ = ["BufferState", "Buffers", "ForwardNote", "LastWrite"]


_SMALL = 65_536
"""Buffers of up to this many elements are always copied."""


class Buffers:
    """All buffers of a model, and which of them a forward pass writes to.

    Torch counts the writes to a tensor, except by normalisation kernels and through `.data`. So small buffers and those
    of normalisation layers always count as written to; the others do once their version counter has risen, once they
    were replaced, or if the first second pass changes them.
    """

    def __init__(self, model: nn.Module | None) -> None:
        modules = list(model.modules()) if model is not None else []
        self._owners = [module._buffers for module in modules]
        norms = {i for i, module in enumerate(modules) if isinstance(module, _NormBase)}
        self._first = self._versions()
        self._written = {(i, name) for i, name, buffer in self._all() if i in norms or buffer.numel() <= _SMALL}
        self._has_tried = False

    def _versions(self) -> dict[tuple[int, str], tuple[int, int]]:
        return {(i, name): (id(buffer), _version(buffer)) for i, name, buffer in self._all()}

    def _all(self) -> list[tuple[int, str, Tensor]]:
        owners = [(i, owner) for i, owner in enumerate(self._owners) if owner]
        return [(i, name, b) for i, owner in owners for name, b in owner.items() if b is not None and _can_be_set(b)]

    def state(self, of_all: bool = False) -> "BufferState":
        """The current values of those that are written to, or of all."""
        if not any(self._owners):
            return _NO_BUFFERS
        found = self._all()
        for i, name, buffer in found:
            if (i, name) not in self._written and self._first.get((i, name)) != (id(buffer), _version(buffer)):
                self._written.add((i, name))
        return BufferState([(self._owners[i], name, b) for i, name, b in found if of_all or (i, name) in self._written])

    def before_second_pass(self) -> Callable[[], None]:
        """Return a function that restores the buffers; at the first second pass it compares all of them."""
        if not any(self._owners):
            return _nothing
        before = self.state(of_all=not self._has_tried)
        return before.restore if self._has_tried else partial(self._learn, before)

    def _learn(self, before: "BufferState") -> None:
        """Restore all buffers, and remember which ones a second pass wrote to without being counted."""
        others = [(i, name, buffer) for i, name, buffer in self._all() if (i, name) not in self._written]
        self._written |= {(i, name) for i, name, buffer in others if not before.has(buffer)}
        self._has_tried = True
        before.restore()
        self._first = self._versions()  # restoring is a write too


def _can_be_set(buffer: Tensor) -> bool:
    """Whether each value has its own memory: an expanded mask does not, and cannot be written to either."""
    return buffer.layout is not torch.strided or 0 not in buffer.stride()


def _version(buffer: Tensor) -> int:
    return -1 if buffer.is_inference() else buffer._version


class BufferState:
    """Buffers and their current values."""

    def __init__(self, places: list[tuple[dict[str, Tensor | None], str, Tensor]]) -> None:
        self._places = places
        self._values = tensors.copies([buffer for _, _, buffer in places])

    def has(self, buffer: Tensor) -> bool:
        """Whether a buffer still has the saved value; a device sync. Only dense buffers are compared."""
        places = zip(self._places, self._values, strict=True)
        value = next((value for (_, _, known), value in places if known is buffer), None)
        return value is not None and (buffer.layout is not torch.strided or torch.equal(buffer, value))

    def restore(self) -> None:
        """Put back buffers that were replaced, and set all of them to these values."""
        for owner, name, buffer in self._places:
            owner[name] = buffer
        tensors.copy_([buffer for _, _, buffer in self._places], self._values)


_NO_BUFFERS = BufferState([])


def _nothing() -> None:
    """Restore nothing."""


class ForwardNote:
    """A forward pre-hook that notes the RNG state before the first forward pass of a step.

    On the outermost module only. Between `perturb()` and `step()` it also notices a forward pass that cannot be the
    second one. A copy of the model, or of the optimizer, starts with an empty note.
    """

    def __init__(self) -> None:
        self.rng: RngState | None = None
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
            self._is_stale = False

    def watch(self, model: nn.Module, abandon: Callable[[], None], way_back: list[Callable[[], object]]) -> None:
        """Between `perturb()` and `step()`, abandon the step if the model is used for anything but the second pass.

        That is a forward pass in evaluation mode or under no_grad, or `model.zero_grad()`. Restoring ends the watch.
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
                module.__dict__.pop("zero_grad", None)

        way_back.append(end)
        self.on_stray = on_stray
        for module in modules:
            module.__dict__["zero_grad"] = _ZeroGrad(module, abandon)

    def mark_stale(self) -> None:
        """Gradients were cleared: if another forward pass follows before the step, that one counts."""
        self._is_stale = True

    def forget(self) -> None:
        """The step has ended."""
        self.rng = self.on_stray = None
        self._kinds.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> "ForwardNote":
        return ForwardNote()

    def __reduce__(self) -> tuple[type["ForwardNote"], tuple[()]]:
        return ForwardNote, ()


class _ZeroGrad:
    """A model's `zero_grad` while a second pass is due: it first abandons the step. Copies get the ordinary one."""

    def __init__(self, model: nn.Module, abandon: Callable[[], None]) -> None:
        self._model, self._abandon = model, abandon

    def __call__(self, set_to_none: bool = True) -> None:
        self._model.__dict__.pop("zero_grad", None)
        self._abandon()
        self._model.zero_grad(set_to_none)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return _ordinary_zero_grad(memo[id(self._model)])

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[nn.Module]]:
        return _ordinary_zero_grad, (self._model,)


def _ordinary_zero_grad(model: nn.Module) -> Callable[..., None]:
    return partial(type(model).zero_grad, model)


class LastWrite:
    """Notices if a gradient was changed between the last backward pass and the step, for example by clipping.

    Off in distributed runs, which write to gradients after the backward pass themselves.
    """

    def __init__(self, parameter: Tensor, way_back: list[Callable[[], object]]) -> None:
        self._parameter, self._version = parameter, -1
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            way_back.append(parameter.register_post_accumulate_grad_hook(self._note).remove)  # type: ignore[no-untyped-call]

    def _note(self, parameter: Tensor) -> None:
        self._version = -1 if parameter.grad is None else parameter.grad._version

    @property
    def was_changed(self) -> bool:
        """Whether the gradient differs from what the backward pass left."""
        gradient = self._parameter.grad
        return self._version >= 0 and gradient is not None and gradient._version != self._version
