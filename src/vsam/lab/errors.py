"""The ways in which the lab fails: by what the user gave, by two at once, by damaged files, and while running."""

import difflib
from collections.abc import Iterable

__all__ = [
    "DamagedError",
    "DataError",
    "InUseError",
    "LostRankError",
    "RunError",
    "UserError",
    "is_out_of_memory",
    "nearest",
]


class UserError(ValueError):
    """What the user gave cannot work; the message says what to do. Exit code 2."""


class DataError(ValueError):
    """Something about the user's data or request is wrong; the message says what to do. Exit code 2."""


class InUseError(UserError):
    """Another process is at work on the same run."""


class RunError(RuntimeError):
    """Something failed while running; the message says what, and how to go on. Exit code 1."""


class DamagedError(RunError):
    """The files of a run are damaged, or another run's: it must be trained again; other runs are not concerned."""


class LostRankError(RunError):
    """Another process of the same run has ended, or does not answer."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory has run out: Python's, torch's on the CPU, or a GPU's; told without importing torch."""
    said = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    is_torchs = isinstance(error, RuntimeError) and any(text in str(error) for text in said)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or is_torchs


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint to what may have been meant, and all that there is; it begins with a space."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (f" Did you mean {near[0]!r}?" if near else "") + f" Known: {', '.join(known) or 'none'}."
