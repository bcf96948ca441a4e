"""Who called us: warnings that point at the user's line, and which package's loop it is."""

import sys
import warnings
from collections.abc import Callable, Container
from types import FrameType

__all__ = ["calling_module", "calling_package", "warn_caller"]

_INNER = ("vsam", "torch")


def warn_caller(message: str) -> None:
    """Warn at the innermost line that is neither in this package nor in torch, whose wrappers are in between."""
    # warnings.warn(skip_file_prefixes=…) does this from Python 3.12 on.
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def calling_package(known: Container[str]) -> str | None:
    """The outermost of some known packages among the callers; None if none of them called."""
    return _outermost(lambda module: module.split(".")[0], known)


def calling_module(known: Container[str]) -> str | None:
    """The outermost of some known modules among the callers; None if none of them called."""
    return _outermost(str, known)


def _outermost(named: Callable[[str], str], known: Container[str]) -> str | None:
    frame: FrameType | None = sys._getframe(2)
    found = None
    while frame is not None:
        name = named(frame.f_globals.get("__name__", ""))
        found = name if name in known else found
        frame = frame.f_back
    return found
