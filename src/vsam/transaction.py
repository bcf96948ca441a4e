"""Undo: every change has a restorer that is registered before it."""

import random
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from vsam.rng import rewinder

__all__ = ["Restorer", "Transaction", "restorer"]

Restorer = Callable[[], object]


class Transaction(AbstractContextManager[None]):
    """Two stacks of restorers: `way_back` undoes the second pass, `guards` a step that failed.

    A restorer may run twice, so that an interrupted rollback can be repeated: use a transaction as two nested contexts,
    the outer of which does that. Once `outcome` is not empty, the base optimizer has stepped or the step was skipped,
    and only `way_back` is left.
    """

    def __init__(self) -> None:
        self.outcome: list[Any] = []
        self.guards: list[Restorer] = []
        self.way_back: list[Restorer] = []
        self._draws: list[Restorer] = []
        self._was_undone = False

    @property
    def is_over(self) -> bool:
        """Whether it was undone, or can no longer be."""
        return self._was_undone or bool(self.outcome)

    def guard_draws(self, generator: random.Random) -> None:
        """Rewind the generator to here if the step fails."""
        self._draws.append(rewinder(generator))

    def undo_draws(self) -> None:
        """Rewind the generators."""
        for rewind in self._draws:
            rewind()

    def restore(self) -> None:
        """Restore weights, buffers and generators as they were before the second pass; a second call does nothing."""
        _run(self.way_back)

    def rollback(self) -> None:
        """Undo the step, unless it is done."""
        self._was_undone = True
        had_gradients = torch.is_grad_enabled()
        try:
            try:
                torch._C._set_grad_enabled(False)
                self.restore()
                if not self.outcome:
                    _run(self.guards)
                    self.undo_draws()
            finally:
                torch._C._set_grad_enabled(had_gradients)
        finally:  # again, in case Ctrl-C arrived right there
            torch._C._set_grad_enabled(had_gradients)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.rollback()


def _run(restorers: list[Restorer]) -> None:
    """Run all restorers, latest first, even if one fails; an interrupted one runs again."""
    failure: Exception | None = None
    while restorers:
        try:
            restorers[-1]()
        except Exception as error:
            failure = error
        restorers.pop()
    if failure is not None:
        raise failure


def restorer(thing: object) -> Restorer:
    """Return a function that restores an object's attributes, including lists but not the state of generators."""
    attributes = vars(thing)
    before = {name: value.copy() if type(value) in _COPIED else value for name, value in attributes.items()}
    return lambda: attributes.update(before)


_COPIED = {list, dict, set, deque}
