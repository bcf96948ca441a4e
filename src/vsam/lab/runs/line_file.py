"""An append-only file of JSON lines that knows up to where it is intact."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsam.lab.errors import DamagedError, RunError
from vsam.lab.files import append, read_regular, write_atomically

__all__ = ["LineFile"]


class LineFile:
    """Lines are buffered until they are flushed to disk.

    Args:
        path: of the file.

    `proof` is what a checkpoint records about the flushed file: its size in bytes and their checksum. With it, `rewind`
    drops what was written later, and detects what is missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[str] = []
        self._size, self._hash = 0, hashlib.sha256()

    @property
    def proof(self) -> dict[str, Any]:
        """The size of the file and its checksum."""
        return {"bytes": self._size, "checksum": f"sha256:{self._hash.hexdigest()}"}

    def add(self, line: dict[str, Any]) -> None:
        """Buffer a line until the next `flush`."""
        self._waiting.append(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Append buffered lines to the file; from then on they survive a power failure."""
        if not self._waiting:
            return
        text = "".join(self._waiting)
        try:
            append(self.path, text)
        except OSError as error:
            raise RunError(
                f"{self.path} could not be written: {error.strerror}. Free some space and rerun the same command "
                "to resume from the last checkpoint."
            ) from error
        self._waiting = []
        self._count(text.encode())

    def rewind(self, proof: Mapping[str, Any] | None) -> None:
        """Drop what was written after the proof, or everything without one; a mismatch is an error."""
        content = self._read()
        size = proof["bytes"] if proof else 0
        self._restart(content[:size])
        if self._size < size:
            self._refuse(f"has only {self._size:,} of the {size:,} bytes it had at the last checkpoint")
        if proof and self.proof != proof:
            self._refuse("is damaged: its checksum does not match the one in checkpoint.pt")
        if len(content) > size:
            write_atomically(self.path, content[:size])

    def keep(self, lines: list[dict[str, Any]]) -> None:
        """Rewrite the file with these lines."""
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        write_atomically(self.path, text)
        self._restart(text)

    def _restart(self, content: bytes) -> None:
        self._waiting = []
        self._size, self._hash = 0, hashlib.sha256()
        self._count(content)

    def _count(self, content: bytes) -> None:
        self._size += len(content)
        self._hash.update(content)

    def _read(self) -> bytes:
        try:
            return read_regular(self.path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise RunError(f"{self.path} cannot be read: {error.strerror}.") from error

    def _refuse(self, wrong: str) -> None:
        raise DamagedError(f"{self.path} {wrong}. Restore it, or delete {self.path.parent} to retrain the run.")
