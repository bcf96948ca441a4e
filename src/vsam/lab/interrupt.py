"""Defer Ctrl-C and SIGTERM until nothing is half done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["deferred_interrupt", "treat_sigterm_like_ctrl_c"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_is_pressed: list[Callable[[], bool]] = []  # of the active block, if any


def treat_sigterm_like_ctrl_c() -> None:
    """Make SIGTERM, which schedulers send before they kill, raise `KeyboardInterrupt` too."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Defer Ctrl-C and SIGTERM. The yielded function says whether one came. A second one is raised at once.

    The caller checks, saves its state and raises `KeyboardInterrupt`. Otherwise it is raised when the block is left (of
    nested blocks, the outermost). A database interrupted within a transaction stays locked, and a run interrupted
    within a step would lose its work since the last checkpoint.
    """
    if _is_pressed:
        yield _is_pressed[0]
        return
    count = 0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()  # only the main thread handles signals
    # Handlers set by others stay: they may ignore the signal or handle it differently.
    ours = [number for number in _SIGNALS if is_main and signal.getsignal(number) is signal.default_int_handler]
    for number in ours:
        signal.signal(number, note)
    _is_pressed.append(lambda: count > 0)
    try:
        yield _is_pressed[0]
    finally:
        _is_pressed.clear()
        for number in ours:
            signal.signal(number, signal.default_int_handler)
    if count:
        raise KeyboardInterrupt
