"""A model's buffers during a step: the second pass starts from the first one's, and leaves them alone."""

from collections.abc import Callable, Container
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from vsam import tensors

__all__ = ["BufferState", "Buffers"]

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
        # In training, torch's own normalisation layers write to their statistics, but do not depend on them.
        ordinary = {i for i in norms if type(modules[i]).forward.__module__.startswith("torch.nn.")}
        self._read = [owner for i, owner in enumerate(self._owners) if i not in ordinary]
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

    def before_first_pass(self) -> "BufferState | None":
        """The current values, for `rewind`; None if there are none that a pass may depend on."""
        return self.state(of_all=not self._has_tried) if any(self._read) else None

    def before_second_pass(self) -> Callable[[], None]:
        """Return a function that restores the buffers; at the first second pass it compares all of them."""
        if not any(self._owners):
            return _nothing
        before = self.state(of_all=not self._has_tried)
        return before.restore if self._has_tried else partial(self._learn, before)

    def rewind(self, start: "BufferState") -> None:
        """Set what a pass may depend on to its values before the first pass, so that the second one repeats it."""
        if not any(self._read):
            return
        if not self._has_tried:  # after rewinding, a second pass that writes the same again shows nothing
            others = [(i, name, buffer) for i, name, buffer in self._all() if (i, name) not in self._written]
            self._written |= {(i, name) for i, name, buffer in others if start.knows(buffer) and not start.has(buffer)}
        start.restore(of={*map(id, self._read)})

    def _learn(self, before: "BufferState") -> None:
        """Restore all buffers, and remember which ones a second pass wrote to without being counted."""
        others = [(i, name, buffer) for i, name, buffer in self._all() if (i, name) not in self._written]
        self._written |= {(i, name) for i, name, buffer in others if not before.has(buffer)}
        self._has_tried = True
        before.restore()
        self._first = self._versions()  # restoring is a write too


_FLAGS = (torch.bool, torch.uint8)


def _can_be_set(buffer: Tensor) -> bool:
    """Whether a pass can write to it: not to an inference tensor or an expanded mask, whose values share memory."""
    return not buffer.is_inference() and (buffer.layout is not torch.strided or 0 not in buffer.stride())


def _version(buffer: Tensor) -> int:
    return -1 if buffer.is_inference() else buffer._version


class BufferState:
    """Buffers and their current values."""

    def __init__(self, places: list[tuple[dict[str, Tensor | None], str, Tensor]]) -> None:
        self.places = places
        self._values = tensors.copies([buffer for _, _, buffer in places])

    def knows(self, buffer: Tensor) -> bool:
        """Whether the value of a buffer was saved."""
        return any(known is buffer for _, _, known in self.places)

    def has(self, buffer: Tensor) -> bool:
        """Whether a buffer still has the saved value; a device sync. Only dense buffers are compared."""
        places = zip(self.places, self._values, strict=True)
        value = next((value for (_, _, known), value in places if known is buffer), None)
        return value is not None and (buffer.layout is not torch.strided or torch.equal(buffer, value))

    def restore(self, of: Container[int] | None = None) -> None:
        """Put back buffers that were replaced, and set all of them to these values.

        Or only those of some owners, without flags: a flag says that a layer was initialised by its first batch, which
        must not happen again in the second pass.
        """
        places, values = self.places, self._values
        if of is not None:
            kept = [i for i, (owner, _, b) in enumerate(places) if id(owner) in of and b.dtype not in _FLAGS]
            places, values = [places[i] for i in kept], [values[i] for i in kept]
        for owner, name, buffer in places:
            owner[name] = buffer
        buffers = [buffer for _, _, buffer in places]
        if [*map(Tensor.numel, buffers)] == [*map(Tensor.numel, values)]:
            tensors.copy_(buffers, values)
        else:  # a forward pass has resized some, as observers of quantization do
            for buffer, value in zip(buffers, values, strict=True):
                buffer.data = value.clone()


_NO_BUFFERS = BufferState([])


def _nothing() -> None:
    """Restore nothing."""
