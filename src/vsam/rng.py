"""The state of the global generators, and how to rewind them to it."""

import ctypes
import random
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Self

import torch
from torch import Tensor

__all__ = ["RngState", "rewinder"]

_BYTES = 4 * 625
"""The memory of a Mersenne twister: a position and 624 words, in this order in Python, the other way round in NumPy."""

_MARK = 4 * 8
"""Bytes of words by which a state is recognised.

Every draw moves the position; when that starts over, or a seed is set, all words change.
"""


class RngState:
    """The current states of all global generators that a pass may draw from.

    They are Python's, NumPy's if it is imported, torch's on the CPU, and torch's on each device in use.
    """

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._python = _PythonState.now()
        self._numpy = _NumpyState.now() if "numpy" in sys.modules else None
        self._cpu = torch.default_generator.get_state()
        self._devices = [(device, _device_state(device)) for device in devices if device.type != "cpu"]

    def restore(self) -> None:
        """Rewind all of them to these states."""
        self._python.restore()
        if self._numpy is not None:
            self._numpy.restore()
        torch.default_generator.set_state(self._cpu)
        for device, state in self._devices:
            module = torch.get_device_module(device)
            module.set_rng_state(state) if device.type == "mps" else module.set_rng_state(state, device)


class _TwisterState(ABC):
    """The state of a Mersenne twister. Reading it takes as long as ten operators, so it is read only if it has moved.

    A mark in its memory shows whether it has: the position and the first words.
    """

    _latest: "Self | None" = None

    def __init__(self, mark: Any) -> None:
        self._state = self._read(mark)
        self._mark = None if mark is None or self._hides_something() else mark

    @classmethod
    def now(cls) -> Self:
        """The current state; the latest one read if it has not moved since."""
        mark, latest = cls._look(), cls._latest
        if latest is None or mark is None or latest._mark != mark:
            latest = cls._latest = cls(mark)
        return latest

    def restore(self) -> None:
        """Rewind the generator if it has moved."""
        if self._mark is None or self._mark != self._look():
            self._write()

    @classmethod
    @abstractmethod
    def _look(cls) -> Any:
        """The mark in memory; None for a generator of another kind."""

    @abstractmethod
    def _read(self, mark: Any) -> Any: ...

    @abstractmethod
    def _write(self) -> None: ...

    def _hides_something(self) -> bool:
        """Whether that memory shows only part of this state."""
        return False


class _PythonState(_TwisterState):
    """Python's `random`; besides its memory there may be a cached normal number for the next draw."""

    _inner: Any = random._inst
    _address = id(_inner) + object.__basicsize__
    _view = memoryview((ctypes.c_char * (4 + _MARK)).from_address(_address))

    @classmethod
    def _look(cls) -> tuple[bytes, float | None] | None:
        return (cls._view.tobytes(), cls._inner.gauss_next) if _IS_KNOWN else None

    def _read(self, mark: Any) -> Any:
        return random.getstate()

    def _write(self) -> None:
        random.setstate(self._state)


class _NumpyState(_TwisterState):
    """NumPy's global generator; its memory does not show whether a normal number is cached.

    Once one was, every state is read: a state that was set may differ from a known one by that number alone.
    """

    _seen: tuple[Any, Any, Any] = (None, None, None)
    _find: Callable[[], Any] | None = None
    _has_kept_back = False

    @classmethod
    def _look(cls) -> bytes | None:
        find: Any = cls._find
        if find is None:
            find = cls._find = getattr(sys.modules["numpy"].random, "get_bit_generator", _nothing)
        now, (bits, words, position) = find(), cls._seen
        if now is not bits:
            words, position = cls._see(now)
        return words.tobytes() + position.tobytes() if words is not None else None

    @classmethod
    def _see(cls, bits: Any) -> tuple[Any, Any]:
        """Where the words and the position of a new generator are; None for one of another kind."""
        words = position = None
        if type(bits).__name__ == "MT19937":
            address = bits.ctypes.state_address
            words = memoryview((ctypes.c_char * _MARK).from_address(address))
            position = memoryview((ctypes.c_char * 4).from_address(address + _BYTES - 4))
        cls._seen = (bits, words, position)
        return words, position

    def _read(self, mark: bytes | None) -> Any:
        # The legacy form is faster, but warns about generators of another kind.
        return sys.modules["numpy"].random.get_state(legacy=mark is not None)

    def _write(self) -> None:
        sys.modules["numpy"].random.set_state(self._state)

    def _hides_something(self) -> bool:
        type(self)._has_kept_back |= bool(self._state[3])
        return self._has_kept_back


def _nothing() -> None:
    """Stands in for a function that old NumPy versions lack."""


def _words(generator: random.Random) -> Any:
    """The memory of a Python generator: its position and its words."""
    return (ctypes.c_char * _BYTES).from_address(id(generator) + object.__basicsize__)


_IS_KNOWN = _words(random._inst).raw[4:] == struct.pack("624I", *random.getstate()[1][:-1])
"""Whether this Python keeps the state where we look for it."""


def rewinder(generator: random.Random) -> Callable[[], None]:
    """Return a function that rewinds a private generator to its current state."""
    if not _IS_KNOWN or type(generator) is not random.Random:
        state = generator.getstate()
        return lambda: generator.setstate(state)
    memory, kept_back = _words(generator).raw, generator.gauss_next  # type: ignore[attr-defined]

    def rewind() -> None:
        position, *words = struct.unpack("i624I", memory)
        generator.setstate((random.Random.VERSION, (*words, position), kept_back))

    return rewind


def _device_state(device: torch.device) -> Tensor:
    module = torch.get_device_module(device)
    state = module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)
    assert isinstance(state, Tensor)
    return state
