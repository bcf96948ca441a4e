"""The lab's errors: bad user input, a busy run, damaged files, and failures while running."""

import difflib
import importlib.metadata
import json
from collections.abc import Iterable
from urllib.parse import unquote

__all__ = [
    "DamagedError",
    "DataError",
    "InUseError",
    "LostRankError",
    "RunError",
    "UserError",
    "install_line",
    "is_out_of_memory",
    "nearest",
]


class UserError(ValueError):
    """Wrong input of the user. The message says what to do. Exit code 2."""


class DataError(ValueError):
    """A problem of the user's data or request. The message says what to do. Exit code 2."""


class InUseError(UserError):
    """Another process is working on the same run."""


class RunError(RuntimeError):
    """A failure of a run. The message says what failed, and how to continue. Exit code 1."""


class DamagedError(RunError):
    """A run's files are damaged or belong to another run: it must be retrained. Other runs are unaffected."""


class LostRankError(RunError):
    """Another process of the same run has exited or does not respond."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if memory ran out, in Python, in torch on the CPU or on a GPU, without importing torch."""
    said = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    is_torchs = isinstance(error, RuntimeError) and any(text in str(error) for text in said)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or is_torchs


def install_line(*extras: str) -> str:
    """Return the command that adds these extras to vsam, from where it was installed: a clone, a file, or PyPI."""
    wanted = f"[{','.join(extras)}]"
    try:
        text = importlib.metadata.distribution("vsam").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # run from its source
        return f"pip install '.{wanted}' in a clone of vsam"
    origin = json.loads(text) if text else {}
    url = str(origin.get("url", ""))
    if not url:
        return f"pip install 'vsam{wanted}'"
    if "dir_info" not in origin:
        vcs = origin.get("vcs_info", {})
        scheme = f"{vcs['vcs']}+" if vcs else ""
        revision = f"@{vcs['requested_revision']}" if vcs.get("requested_revision") else ""
        return f"pip install 'vsam{wanted} @ {scheme}{url}{revision}'"
    folder = unquote(url.removeprefix("file://"))
    return f"pip install {'-e ' if origin['dir_info'].get('editable') else ''}'{folder}{wanted}'"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a 'Did you mean' hint and the known names, after a space."""
    known = list(known)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return (f" Did you mean {near[0]!r}?" if near else "") + f" Known: {', '.join(known) or 'none'}."
