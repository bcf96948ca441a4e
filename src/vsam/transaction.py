"""What can be undone: every deed has a restorer that is registered before it."""

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
    """Two stacks of restorers: `way_back` leads back from the second pass, `guards` from a step that failed.

    A restorer may run twice, so that a way back that was interrupted can be gone again: use a transaction as two nested
    contexts, of which the outer one does that. Once `outcome` is not empty, the base optimizer has stepped or the step
    was skipped, and only the way back from the second pass is left.
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
        """Let a step that fails give back what is drawn from here on."""
        self._draws.append(rewinder(generator))

    def undo_draws(self) -> None:
        """Give back what was drawn."""
        for rewind in self._draws:
            rewind()

    def restore(self) -> None:
        """Put weights, buffers and generators back to where the second pass began; once more does nothing."""
        _run(self.way_back)

    def rollback(self) -> None:
        """Put everything back as if the step had not begun, unless it is done."""
        self._was_undone = True
        with torch.no_grad():
            self.restore()
            if not self.outcome:
                _run(self.guards)
                self.undo_draws()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.rollback()


def _run(restorers: list[Restorer]) -> None:
    """Run the restorers, the latest first, all of them even if one fails; one that is interrupted runs again."""
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
    """What sets an object's attributes back to now, with the lists among them; a generator is not among them."""
    attributes = vars(thing)
    before = {name: value.copy() if type(value) in _COPIED else value for name, value in attributes.items()}
    return lambda: attributes.update(before)


_COPIED = {list, dict, set, deque}
