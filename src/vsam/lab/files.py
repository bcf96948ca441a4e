"""Atomic writes, and reads of regular files only."""

import errno
import os
import stat
import sys
import tempfile
from pathlib import Path

from vsam.lab.errors import RunError, UserError

__all__ = [
    "append",
    "check_output",
    "is_standard_output",
    "is_too_deep",
    "make_folder",
    "read_regular",
    "write_atomically",
    "write_output",
]

_DEEPEST = 32  # far deeper than any of our files; Python's own recursion fails at some hundreds
_NOT_REGULAR = "it is a device or a pipe, not a regular file"


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace the file at `path` with `content`. On any failure the old file is unchanged.

    A symlink is kept and its target replaced. Anything but a regular file is an error. When this returns, the file
    and its directory entry are on disk and survive a power failure.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        _check_regular(path)
        target = _followed(path)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise RunError(f"{path} could not be written: {error.strerror}. Nothing was changed.") from error


def append(path: Path, content: str) -> None:
    """Append to a file, created if missing. When this returns, the content is on disk."""
    is_new = not path.exists()
    _check_regular(path)
    with path.open("ab") as file:
        file.write(content.encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def read_regular(path: Path) -> bytes:
    """The content of a file. A pipe or a device, which might never end, raises an `OSError`."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))
    return path.read_bytes()


def is_too_deep(content: object) -> bool:
    """Return True if a file's content is nested too deeply for Python's own functions."""
    level = [content]
    for _ in range(_DEEPEST):
        nested = [one for one in level if isinstance(one, list | dict)]
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
    return bool(level)


def make_folder(path: Path) -> None:
    """Create a writable folder, or say why that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be written to: {error.strerror}. Choose another folder with --out.") from error


def check_output(path: Path | None) -> None:
    """Create the folder, and fail before hours of work if `write_output` could not write the file."""
    if path is None or is_standard_output(path):
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder: give a file name.")
    try:
        _check_regular(path)
        target = _followed(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Give a file name.") from error
    make_folder(target.parent)


def write_output(path: Path | None, text: str) -> None:
    """Write to the file that the user named or to stdout. Do nothing if no file was named."""
    if is_standard_output(path):
        sys.stdout.write(text)
    elif path is not None:
        write_atomically(path, text)


def is_standard_output(path: Path | None) -> bool:
    """Return True if the path means stdout: `-`, or one of the system's names for it."""
    return str(path) in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def _check_regular(path: Path) -> None:
    """Reject a path that exists but is not a regular file, or that names an open stream. The caller handles folders."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    is_stream = str(path).startswith(("/dev/fd/", "/dev/std", "/proc/"))
    if is_stream or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))


def _followed(path: Path) -> Path:
    """Return the final target of a symlink, even if nothing exists there yet. Other paths are returned as they are."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk, where the file system supports it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # where folders cannot be opened
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
