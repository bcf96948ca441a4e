"""Files that are written whole or not at all, and read only where they are files."""

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

_DEEPEST = 32  # far beyond any file of ours; Python itself gives up at some hundreds, wherever it then is
_NOT_REGULAR = "it is a device, a pipe or the like, not a regular file"


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace the file at `path` by `content`; on any failure the old file stays as it was.

    A link is kept, and the file that it leads to is replaced. What is not a regular file is refused. When this returns
    the file is on the disk, its name included, and stays there if the power fails.
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
        raise RunError(f"{path} could not be written: {error.strerror}. What was there before is untouched.") from error


def append(path: Path, content: str) -> None:
    """Add to the end of a file, which is created where there is none; when this returns it is on the disk."""
    is_new = not path.exists()
    _check_regular(path)
    with path.open("ab") as file:
        file.write(content.encode())
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        _sync_folder(path.parent)


def read_regular(path: Path) -> bytes:
    """The content of a file; of a pipe or a device, which might never end, an `OSError`."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))
    return path.read_bytes()


def is_too_deep(content: object) -> bool:
    """Whether what a file holds is nested beyond what Python's own functions can follow."""
    level = [content]
    for _ in range(_DEEPEST):
        nested = [one for one in level if isinstance(one, list | dict)]
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
    return bool(level)


def make_folder(path: Path) -> None:
    """Create a folder that can be written to, or say why that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be written to: {error.strerror}. Choose another folder with --out.") from error


def check_output(path: Path | None) -> None:
    """Say, before hours of work, why `write_output` could not write a file; its folder is created."""
    if path is None or is_standard_output(path):
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file.")
    try:
        _check_regular(path)
        target = _followed(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}. Give the name of a file.") from error
    make_folder(target.parent)


def write_output(path: Path | None, text: str) -> None:
    """Write a file that the user named, or to the standard output; nothing where none was named."""
    if is_standard_output(path):
        sys.stdout.write(text)
    elif path is not None:
        write_atomically(path, text)


def is_standard_output(path: Path | None) -> bool:
    """Whether a file that the user named is the standard output: `-`, or one of the system's names for it."""
    return str(path) in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def _check_regular(path: Path) -> None:
    """Refuse what is there and is no regular file, or a name for an open stream; folders are left to the caller."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    is_stream = str(path).startswith(("/dev/fd/", "/dev/std", "/proc/"))
    if is_stream or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, _NOT_REGULAR, str(path))


def _followed(path: Path) -> Path:
    """Where a link leads in the end, even if nothing is there yet; a path without links is itself."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, where its file system can do that."""
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
