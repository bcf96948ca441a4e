"""Repeat the first pass: generators and buffers as they were before it, buffers left alone by the second pass."""

import random
import sys
from collections.abc import Callable, Container, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.nn.modules.batchnorm import _NormBase

from vsam._step import foreach
from vsam._step.input_watch import InputWatch
from vsam._step.undo import Restorer, Undo

_FLAGS = (torch.bool, torch.uint8)


class RngState:
    """The current states of all global generators that a pass may draw from.

    They are Python's, NumPy's once `numpy.random` is imported, torch's on the CPU, and torch's on each device in use.
    """

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._python = random.getstate()
        self._numpy = sys.modules["numpy.random"].get_state(legacy=False) if "numpy.random" in sys.modules else None
        self._cpu = torch.default_generator.get_state()
        self._devices = [(device, _device_state(device)) for device in devices if device.type != "cpu"]

    def restore(self) -> None:
        """Rewind every generator to its state."""
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy.random"].set_state(self._numpy)
        torch.default_generator.set_state(self._cpu)
        for device, state in self._devices:
            module = torch.get_device_module(device)
            module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)


def _device_state(device: torch.device) -> Any:
    module = torch.get_device_module(device)
    return module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)


class Start:
    """Generators and buffers right before a first pass.

    Args:
        rng: the generators; None if the pass was not seen.
        buffers: the buffers that a pass may depend on; None if there are none.
    """

    def __init__(self, rng: RngState | None = None, buffers: "BufferState | None" = None) -> None:
        self.rng, self.buffers = rng, buffers


class Buffers:
    """All buffers of a model.

    Args:
        model: the model; None if there is none.
        save_others: saves what else a second pass must leave alone, and returns the function that restores it.
    """

    def __init__(self, model: nn.Module | None, save_others: Callable[[], Restorer] | None = None) -> None:
        self._save_others = save_others
        modules = list(model.modules()) if model is not None else []
        self._owners = [module._buffers for module in modules]
        # In training, torch's own normalisation layers write to their statistics, but do not depend on them.
        ordinary = [isinstance(m, _NormBase) and type(m).forward.__module__.startswith("torch.nn.") for m in modules]
        self._read = [owner for owner, is_own in zip(self._owners, ordinary, strict=True) if not is_own]

    def state(self) -> "BufferState":
        """Copy all buffers, also those that seem constant: writes through `.data` leave no trace."""
        if not any(self._owners):
            return _NO_BUFFERS
        owners = filter(None, self._owners)
        return BufferState([(o, name, b) for o in owners for name, b in o.items() if b is not None and _can_be_set(b)])

    def before_first_pass(self) -> "BufferState | None":
        """Copy the buffers for `rewind`. Return None if there are none that a pass may depend on."""
        return self.state() if any(self._read) else None

    def leave_alone(self, undo: Undo) -> None:
        """Register how to restore everything that a pass writes to."""
        if self._save_others is not None:
            undo.push(self._save_others())
        undo.push(self.state().restore)

    def rewind(self, start: "BufferState") -> None:
        """Set what a pass may depend on to its values before the first pass."""
        start.restore(of={*map(id, self._read)})


def _can_be_set(buffer: Tensor) -> bool:
    """Return whether a pass can write to it: not to an inference tensor or an expanded mask with shared memory."""
    return not buffer.is_inference() and (buffer.layout is not torch.strided or 0 not in buffer.stride())


class BufferState:
    """Buffers and their current values."""

    def __init__(self, places: list[tuple[dict[str, Tensor | None], str, Tensor]]) -> None:
        self._places = places
        self._values = foreach.copies([buffer for _, _, buffer in places])

    def restore(self, of: Container[int] | None = None) -> None:
        """Put back buffers that were replaced, and set all of them to these values.

        Or only those of some owners, without flags: a flag says that a layer was initialised by its first batch, which
        must not happen again in the second pass.
        """
        places, values = self._places, self._values
        if not places:
            return
        if of is not None:
            kept = [i for i, (owner, _, b) in enumerate(places) if id(owner) in of and b.dtype not in _FLAGS]
            places, values = [places[i] for i in kept], [values[i] for i in kept]
        for owner, name, buffer in places:
            owner[name] = buffer
        buffers = [buffer for _, _, buffer in places]
        if [*map(Tensor.numel, buffers)] == [*map(Tensor.numel, values)]:
            foreach.copy_(buffers, values)
        else:  # a forward pass has resized some, as observers of quantization do
            for buffer, value in zip(buffers, values, strict=True):
                buffer.data = value.clone()


_NO_BUFFERS = BufferState([])


class FirstPassRecorder:
    """A forward pre-hook of the outermost module that records where a step's first pass starts.

    A copy of the model, or of the optimizer, starts with an empty record.
    """

    def __init__(self) -> None:
        self.was_called = self.is_stale = False
        self.buffers = Buffers(None)
        self.save_others: Callable[[], Restorer] | None = None
        self.on_start: Callable[[], object] | None = None
        self.forget()

    def forget(self) -> None:
        """Drop the record: the step has ended."""
        self.start = Start()
        self.inputs: InputWatch | None = None
        self.kinds: set[tuple[bool, bool]] = set()
        self.on_forward: Callable[[tuple[bool, bool]], object] | None = None

    def mark_stale(self) -> None:
        """Let the next forward pass count as the first: the gradients were cleared."""
        self.is_stale = True

    @_disable_dynamo
    def __call__(self, module: nn.Module, *inputs: Any) -> None:
        """Record the start at a step's first forward pass in training."""
        self.was_called = True
        kind = (module.training, torch.is_grad_enabled())
        if self.on_forward is not None:
            self.on_forward(kind)
        else:
            self.kinds.add(kind)
            if all(kind) and (self.start.rng is None or self.is_stale):
                self.is_stale, self.inputs = False, InputWatch()
                rng = RngState({parameter.device for parameter in module.parameters()})
                self.start = Start(rng, self.buffers.before_first_pass())
                if self.on_start is not None:
                    self.on_start()
        if self.inputs is not None and all(kind):
            self.inputs.note(inputs, lambda: RngState({p.device for p in module.parameters()}).restore)

    def __reduce__(self) -> tuple[type["FirstPassRecorder"], tuple[()]]:
        return FirstPassRecorder, ()


def repeat(start: Start, buffers: Buffers, devices: Iterable[torch.device], undo: Undo) -> None:
    """Set generators and buffers for a pass that repeats the one from `start`, and register how to undo that."""
    buffers.leave_alone(undo)
    undo.push(RngState(devices).restore)
    if start.rng is not None:
        start.rng.restore()
    if start.buffers is not None:
        buffers.rewind(start.buffers)
