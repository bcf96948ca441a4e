"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from vsam.lab.errors import RunError, UserError

__all__ = ["make_folder", "write_atomically"]


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace the file at `path` by `content`; on any failure the old file stays as it was."""
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise RunError(f"{path} could not be written: {error.strerror}. What was there before is untouched.") from error


def make_folder(path: Path) -> None:
    """Create a folder that can be written to, or say why that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be written to: {error.strerror}. Choose another folder with --out.") from error
