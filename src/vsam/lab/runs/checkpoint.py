"""Checkpoints of runs: written atomically, verified by checksum, and read without executing anything."""

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
_FIRST_SEALED = 2  # the first version whose checkpoints contain a checksum
_ADVICE = "Choose another folder with --out, or delete it to restart this run."
_SEAL_SIZE = len("sha256:") + 64


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` with the mark by which `load_checkpoint` recognizes it; any torch reader can load it."""
    buffer = io.BytesIO()  # torch's own writer hides the reason when the disk is full
    torch.save({"format": _FORMAT, "version": _VERSION, **content}, buffer)
    write_atomically(path, _sealed(buffer.getvalue()))


def load_checkpoint(path: Path, device: torch.device | str = "cpu", *, advice: str = _ADVICE) -> dict[str, Any]:
    """Read a checkpoint; a damaged, foreign, newer or malicious one raises an error.

    Args:
        path: of the file.
        device: where its tensors go.
        advice: what the user should do about a damaged or foreign one; the default is for a run to resume.
    """
    file = _read(path)
    try:
        is_sealed = _check_seal(file)
        with warnings.catch_warnings(action="ignore"):  # about foreign files, addressed to programmers
            content: Any = torch.load(io.BytesIO(file), map_location=device, weights_only=True)
    except Exception as error:  # whatever torch and pickle raise on foreign bytes; nothing was executed
        reason = _reason(file, error)
        raise DamagedError(f"{path} is damaged or not a vsam checkpoint: {reason}. {advice}") from error
    version = content.get("version") if isinstance(content, dict) and content.get("format") == _FORMAT else None
    if not isinstance(version, int):
        raise DamagedError(f"{path} was not written by vsam. {advice}")
    if version > _VERSION:
        raise RunError(f"{path} was written by a newer vsam (format {version}). Upgrade vsam to use it.")
    if version >= _FIRST_SEALED and not is_sealed:
        raise DamagedError(f"{path} is damaged or was changed: its checksum is missing. {advice}")
    checked: dict[str, Any] = content
    return checked


class _BrokenSealError(Exception):
    """The bytes differ from those written."""


def _sealed(archive: bytes) -> bytes:
    """The archive with its checksum as the comment at the end of the zip file, after the comment's length."""
    body = archive[:-2]
    seal = _checksum(body)
    return body + len(seal).to_bytes(2, "little") + seal


def _check_seal(file: bytes) -> bool:
    """Whether the file contains its checksum; older files do not, and are checked by their zip entries' checksums."""
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
    """The reason in our words: torch's messages suggest loading without protection, or are a mere number."""
    if not file:
        return "it is empty"
    if isinstance(error, _BrokenSealError):
        return "its checksum does not match its content"
    if not zipfile.is_zipfile(io.BytesIO(file)):
        return "it is not a complete torch checkpoint"
    if isinstance(error, pickle.UnpicklingError):
        return "it contains more than tensors and plain values, which could execute code (nothing was executed)"
    return "its content cannot be understood"
