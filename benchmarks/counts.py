"""Count exactly what a step does: operators, Python calls, backward passes and device syncs.

Counts have no noise, so tests can check them. They depend on the versions of Python and torch, not on the machine.
"""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from vsam._step import foreach

__all__ = ["Counts", "Steps", "count_calls", "count_operators", "count_step", "count_steps", "count_syncs", "typical"]

SYNCS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero", "aten::equal", "tolist")
"""Operators that sync with the device."""


class Steps(Protocol):
    """Something that takes steps and counts its second gradients."""

    @property
    def num_sampled(self) -> int:
        """Second gradients so far."""

    def step(self) -> None:
        """Take one training step."""


@dataclass(frozen=True)
class Counts:
    """One step, or the difference of two.

    Args:
        sampled: whether the second gradient was taken.
        passes: calls of backward.
        operators: dispatched operators, including those of autograd's backward.
        calls: Python-level calls, including each resumption of a generator.
        syncs: operators that sync with the device.
    """

    sampled: bool
    passes: int
    operators: int
    calls: int
    syncs: int

    def beyond(self, num_passes: int, single_pass: "Counts", base: "Counts") -> "Counts":
        """The remainder after subtracting the passes and the base's own step."""
        rest = {
            name: value - num_passes * getattr(single_pass, name) - getattr(base, name)
            for name, value in asdict(self).items()
            if name != "sampled"
        }
        return Counts(self.sampled, **rest)


def count_operators(step: Callable[[], object]) -> Counter[str]:
    """Calls of each operator by name without overload, `tolist` under its own name.

    Reading a number on the CPU counts as a sync, as on a GPU.
    """
    names: Counter[str] = Counter()
    with ExitStack() as stack:
        stack.enter_context(patch.object(foreach, "HOST", "nowhere"))
        stack.enter_context(_Lists(names))
        stack.enter_context(_Operators(names))
        step()
    return names


def count_calls(step: Callable[[], object]) -> Counter[str]:
    """Calls of each Python function, by qualified name."""
    names: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names[frame.f_code.co_qualname] += 1
            names["backward pass"] += frame.f_code is torch.autograd.backward.__code__

    before, was_enabled = sys.getprofile(), gc.isenabled()
    gc.disable()  # or unrelated finalizers could be counted
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
        if was_enabled:
            gc.enable()
    return names


def count_syncs(operators: Counter[str]) -> int:
    """Return the number of these operators that sync with the device."""
    return sum(operators[name] for name in SYNCS)


def count_step(first: Callable[[], object], second: Callable[[], object], sampled: bool = False) -> Counts:
    """The counts of a step that runs twice, once to count operators and once to count calls."""
    operators, calls = count_operators(first), count_calls(second)
    passes = calls.pop("backward pass")
    return Counts(sampled, passes, operators.total() - operators["tolist"], calls.total(), count_syncs(operators))


def count_steps(make: Callable[[], Steps], num_steps: int, warm_up: int = 2) -> list[Counts]:
    """The counts of each step.

    Args:
        make: builds the same training loop each time. It is called twice, because counting operators makes calls.
        num_steps: steps to count.
        warm_up: steps before them.
    """
    one, other = make(), make()
    for _ in range(warm_up):
        one.step()
        other.step()
    found = []
    for _ in range(num_steps):
        before = one.num_sampled
        counts = count_step(one.step, other.step)
        found.append(Counts(**{**asdict(counts), "sampled": one.num_sampled > before}))
        assert one.num_sampled == other.num_sampled, "the two loops made different decisions"
    return found


def typical(counts: Sequence[Counts], sampled: bool) -> Counts | None:
    """The most frequent counts among steps of one kind, None if there are none."""
    own = Counter(one for one in counts if one.sampled is sampled)
    return own.most_common(1)[0][0] if own else None


class _Operators(TorchDispatchMode):
    """Counts operators as they are dispatched."""

    def __init__(self, names: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "profiler":
            self._names[func.name().split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


class _Lists(TorchFunctionMode):
    """Counts calls of `tolist`, which dispatches no operator."""

    def __init__(self, names: Counter[str]) -> None:
        super().__init__()
        self._names = names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._names["tolist"] += func is torch.Tensor.tolist
        return func(*args, **(kwargs or {}))
