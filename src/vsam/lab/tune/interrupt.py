"""Ctrl-C at a moment when nothing is half done."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["deferred_interrupt"]


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Take note of Ctrl-C, and raise it when the function that is given is called; a second one is raised at once.

    A database that is interrupted within a transaction stays locked, and then the trial could not be given back.
    """
    was_pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal was_pressed
        if was_pressed:
            raise KeyboardInterrupt
        was_pressed = True

    def check() -> None:
        if was_pressed:
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield check  # somebody else's business, or to be ignored
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
