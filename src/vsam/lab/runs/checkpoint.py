"""Checkpoints of runs: written whole or not at all, proved whole, and read without executing anything."""

import hashlib
import io
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from vsam.lab.errors import DamagedError, RunError
from vsam.lab.files import read_regular, write_atomically

__all__ = ["load_checkpoint", "save_checkpoint"]

_FORMAT, _VERSION = "vsam-run", 2
_FIRST_SEALED = 2  # the version from which on a checkpoint holds its checksum
_ADVICE = "Choose another folder with --out, or delete it to start this run afresh."
_SEAL_SIZE = len("sha256:") + 64


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` with the mark by which `load_checkpoint` knows it; any reader of torch files can load it."""
    buffer = io.BytesIO()  # torch's own writer hides the reason when a disk is full
    torch.save({"format": _FORMAT, "version": _VERSION, **content}, buffer)
    write_atomically(path, _sealed(buffer.getvalue()))


def load_checkpoint(path: Path, device: torch.device | str = "cpu", *, advice: str = _ADVICE) -> dict[str, Any]:
    """Read a checkpoint; one that is damaged, foreign, newer or malicious is refused.

    Args:
        path: of the file.
        device: where its tensors go.
        advice: what a user should do about a damaged or foreign one; the default is that for a run to be continued.
    """
    file = _read(path)
    try:
        is_sealed = _check_seal(file)
        with warnings.catch_warnings(action="ignore"):  # of foreign files, with advice for programmers
            content: Any = torch.load(io.BytesIO(file), map_location=device, weights_only=True)
    except Exception as error:  # whatever torch and pickle make of foreign bytes; nothing of it was executed
        reason = _reason(file, error)
        raise DamagedError(f"{path} is damaged, or not a checkpoint of vsam: {reason}. {advice}") from error
    version = content.get("version") if isinstance(content, dict) and content.get("format") == _FORMAT else None
    if not isinstance(version, int):
        raise DamagedError(f"{path} was not written by vsam. {advice}")
    if version > _VERSION:
        raise RunError(f"{path} was written by a newer vsam (format {version}). Upgrade vsam to use it.")
    if version >= _FIRST_SEALED and not is_sealed:
        raise DamagedError(f"{path} is damaged, or was changed since: its checksum is missing. {advice}")
    checked: dict[str, Any] = content
    return checked


class _BrokenSealError(Exception):
    """The bytes are not those that were written."""


def _sealed(archive: bytes) -> bytes:
    """The archive with its checksum in the comment that a zip file may end with, behind the comment's length."""
    body = archive[:-2]
    seal = _checksum(body)
    return body + len(seal).to_bytes(2, "little") + seal


def _check_seal(file: bytes) -> bool:
    """Whether the file holds its checksum; older ones do not, and are held against those of their zip entries."""
    body, length, seal = file[: -_SEAL_SIZE - 2], file[-_SEAL_SIZE - 2 : -_SEAL_SIZE], file[-_SEAL_SIZE:]
    is_sealed = seal.startswith(b"sha256:") and int.from_bytes(length, "little") == _SEAL_SIZE
    if is_sealed and _checksum(body) != seal:
        raise _BrokenSealError
    if not is_sealed and zipfile.is_zipfile(io.BytesIO(file)):
        with zipfile.ZipFile(io.BytesIO(file)) as archive:
            if archive.testzip() is not None:
                raise _BrokenSealError
    return is_sealed


def _checksum(content: bytes) -> bytes:
    return f"sha256:{hashlib.sha256(content).hexdigest()}".encode()


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}.") from error


def _reason(file: bytes, error: Exception) -> str:
    """What is wrong, in our words: torch's advise to load it without protection, or are a mere number."""
    if not file:
        return "it is empty"
    if isinstance(error, _BrokenSealError):
        return "its checksum is not that of its content"
    if not zipfile.is_zipfile(io.BytesIO(file)):
        return "it is not a complete torch checkpoint"
    if isinstance(error, pickle.UnpicklingError):
        return "it holds something else than tensors and plain values, which could run a program (it was not run)"
    return "its content cannot be understood"
