"""The second pass as a repetition of the first: the same randomness, and statistics left alone."""

import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from vsam import tensors

__all__ = ["ForwardNote", "FrozenStatistics", "Generators", "Statistics", "tracking_layers"]


class Generators:
    """The states of all global generators that a pass may draw from, as they are now.

    They are Python's, NumPy's where it is imported, torch's on the CPU, and torch's on each device in use.
    """

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._python = random.getstate()
        self._numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
        self._cpu = torch.get_rng_state()
        self._devices = [(device, _device_state(device)) for device in devices if device.type != "cpu"]

    def restore(self) -> None:
        """Wind all of them back to these states."""
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.set_rng_state(self._cpu)
        for device, state in self._devices:
            module = torch.get_device_module(device)
            module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)


class Statistics:
    """The running statistics of normalisation layers, as they are now."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self._buffers = [buffer for layer in layers for buffer in layer.buffers(recurse=False)]
        self._values = tensors.copies(self._buffers)

    def restore(self) -> None:
        """Set them back to these values."""
        tensors.copy_(self._buffers, self._values)


class FrozenStatistics:
    """Normalisation by batch statistics as before, without any trace in the running ones, until thawed."""

    def __init__(self, model: nn.Module | None) -> None:
        layers = list(tracking_layers(model))
        self._layers = [layer for layer in layers if isinstance(layer, _BatchNorm)]
        for layer in self._layers:
            layer.track_running_stats = False
        # Other layers update what they have, whatever the flag says.
        self._others = Statistics(layer for layer in layers if not isinstance(layer, _BatchNorm))

    def thaw(self) -> None:
        """Let the layers track again."""
        for layer in self._layers:
            layer.track_running_stats = True
        self._others.restore()


class ForwardNote:
    """A forward pre-hook that notes the generators before the first forward pass of a step.

    Put on the outermost module only, so that a compiled model keeps its graph in one piece. A copy of the model, or
    of the optimizer, starts with an empty note.
    """

    def __init__(self) -> None:
        self.generators: Generators | None = None
        self._is_stale = False
        self.was_called = False

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Note where a step's first pass begins: at its first forward, unless that was given up meanwhile."""
        if torch.compiler.is_compiling():
            return
        self.was_called = True
        if not (module.training and torch.is_grad_enabled()):
            return
        if self.generators is None or self._is_stale:
            self.generators = Generators({p.device for p in module.parameters()})
            self._is_stale = False

    def doubt(self) -> None:
        """Gradients were cleared: if another forward pass follows before the step, it is that one that counts."""
        self._is_stale = True

    def forget(self) -> None:
        """The step has ended."""
        self.generators = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "ForwardNote":
        return ForwardNote()

    def __reduce__(self) -> tuple[type["ForwardNote"], tuple[()]]:
        return ForwardNote, ()


def tracking_layers(model: nn.Module | None) -> Iterator[_NormBase]:
    """The layers that keep running statistics, in training now or later."""
    for layer in model.modules() if model is not None else ():
        if isinstance(layer, _NormBase) and layer.track_running_stats:
            yield layer


def _device_state(device: torch.device) -> Tensor:
    module = torch.get_device_module(device)
    state = module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)
    assert isinstance(state, Tensor)
    return state
