"""Warnings that point at the user's line, however deep in the library their reason was found."""

import sys
import warnings

__all__ = ["warn_caller"]

_INNER = ("vsam", "torch")


def warn_caller(message: str) -> None:
    """Warn at the innermost line that belongs neither to this package nor to torch, whose wrappers lie between."""
    # warnings.warn(skip_file_prefixes=…) does this from Python 3.12 on.
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
