"""Checkpoints: written atomically, verified by their CRCs, and read without executing anything."""

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

_FORMAT, _VERSION = "vsam-run", 3
_ADVICE = "Choose another folder with --out, or delete it to restart this run."


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Replace the checkpoint at `path`. On any failure the old one stays. Plain `torch.load` can read it too."""
    buffer = io.BytesIO()  # torch's own writer hides the reason when the disk is full
    torch.save({"format": _FORMAT, "version": _VERSION, **content}, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path, device: torch.device | str = "cpu", *, advice: str = _ADVICE) -> dict[str, Any]:
    """Read a checkpoint. A damaged, foreign, newer or malicious one raises an error.

    Args:
        path: the file.
        device: where its tensors go.
        advice: what the user should do about a damaged or foreign one. The default is for a run to resume.
    """
    try:
        file = read_regular(path)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    try:
        with zipfile.ZipFile(io.BytesIO(file)) as archive:
            if (damaged := archive.testzip()) is not None:  # torch writes CRCs, but does not check them
                raise zipfile.BadZipFile(f"the CRC of {damaged} does not match its content")
        with warnings.catch_warnings(action="ignore"):  # about foreign files, addressed to programmers
            content: Any = torch.load(io.BytesIO(file), map_location=device, weights_only=True)
    except Exception as error:  # whatever zipfile, torch and pickle raise on foreign bytes; nothing was executed
        raise DamagedError(f"{path} is damaged or not a vsam checkpoint: {_reason(error)}. {advice}") from error
    version = content.get("version") if isinstance(content, dict) and content.get("format") == _FORMAT else None
    if not isinstance(version, int) or version < _VERSION:
        whose = "an older vsam" if isinstance(version, int) else "another program"
        raise DamagedError(f"{path} was written by {whose}. {advice}")
    if version > _VERSION:
        raise RunError(f"{path} was written by a newer vsam (format {version}). Upgrade vsam to use it.")
    checked: dict[str, Any] = content
    return checked


def _reason(error: Exception) -> str:
    """Return the reason in our words: torch's messages suggest loading without protection."""
    if isinstance(error, zipfile.BadZipFile):
        return str(error) if "CRC" in str(error) else "it is not a complete torch checkpoint"
    if isinstance(error, pickle.UnpicklingError):
        return "it contains more than tensors and plain values, which could execute code (nothing was executed)"
    return "its content cannot be understood"
