"""Detect a second pass over other data than the first, by the tensors that the model gets."""

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

_MANY, _FEW = 1_024, 16


class InputWatch:
    """Tensors that the model got in the first pass, each of them until the second pass gets it too.

    A tensor that was made anew, as by `inputs.to(device)`, counts as the same one if its values are. Tensors that
    nobody else keeps are forgotten.
    """

    def __init__(self) -> None:
        self.is_second = False
        self.num_calls = 0
        """Calls of the model in the first pass."""
        self._due: list[weakref.ref[Tensor]] = []
        self._repeated: list[weakref.ref[Tensor]] = []
        self._has_more = self._has_others = self._has_begun = False
        self._started_with: list[weakref.ref[Tensor]] = []
        self._later: deque[tuple[list[weakref.ref[Tensor]], Callable[[], object]]] = deque(maxlen=_FEW)

    def note(self, inputs: Any, rewinder: Callable[[], Callable[[], object]]) -> None:
        """Record the arguments of a model call.

        The pass that is repeated may not be the first that ran, as after a batch that was left out. So the first call
        of the second pass rewinds generators to the call that got the same tensors, if that was one of the latest.

        Args:
            inputs: the arguments.
            rewinder: returns a function that sets generators to their current states.
        """
        tensors = [tensor for tensor in tree_leaves(inputs) if isinstance(tensor, Tensor)]
        if self.is_second:
            if not self._has_begun:
                self._rewind_to(tensors)
            for tensor in tensors:
                self._repeat(tensor)
            return
        references = [*map(weakref.ref, tensors)]
        self.num_calls += 1
        if self.num_calls == 1:
            self._started_with = references
        else:
            self._later.append((references, rewinder()))
        for reference in references:
            self._due.append(reference)
            if len(self._due) % _MANY == 0:  # a model in use, whose optimizer does not step
                self._due = [one for one in self._due if one() is not None]

    def _rewind_to(self, tensors: list[Tensor]) -> None:
        """Rewind to the first known call with these tensors. For the first of all, generators are already right."""
        self._has_begun = True
        if not tensors or _are_same(self._started_with, tensors):
            return
        found = next((rewind for references, rewind in self._later if _are_same(references, tensors)), None)
        if found is not None:
            found()

    @property
    def has_other_data(self) -> bool:
        """True if the second pass got a tensor too often, or unknown ones in place of those of the first pass."""
        return self._has_more or (self._has_others and any(one() is not None for one in self._due))

    def _repeat(self, tensor: Tensor) -> None:
        i = next((i for i, one in enumerate(self._due) if one() is tensor), None)
        if i is None and any(one() is tensor for one in self._repeated):
            self._has_more = True
            return
        if i is None:
            i = next((i for i, one in enumerate(self._due) if _are_equal(one(), tensor)), None)
        if i is None:
            self._has_others = True
        else:
            self._repeated.append(self._due.pop(i))


def _are_same(references: list[weakref.ref[Tensor]], tensors: list[Tensor]) -> bool:
    return len(references) == len(tensors) and all(one() is t for one, t in zip(references, tensors, strict=True))


def _are_equal(one: Tensor | None, other: Tensor) -> bool:
    """Compare two tensors, which costs a device sync if they have the same shape."""
    if one is None or any(tensor.is_nested or tensor.layout is not torch.strided for tensor in (one, other)):
        return False
    kinds = [(tensor.shape, tensor.dtype, tensor.device) for tensor in (one, other)]
    return kinds[0] == kinds[1] and torch.equal(one, other)
