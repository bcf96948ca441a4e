"""Checkpoints of runs: written whole or not at all, read without executing anything."""

import io
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from vsam.lab.errors import RunError
from vsam.lab.files import write_atomically

__all__ = ["load_checkpoint", "save_checkpoint"]

_FORMAT, _VERSION = "vsam-run", 1
_ADVICE = "Choose another folder with --out, or delete it to start this run afresh."


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` with the mark by which `load_checkpoint` knows it."""
    buffer = io.BytesIO()  # torch's own writer hides the reason when a disk is full
    torch.save({"format": _FORMAT, "version": _VERSION, **content}, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path, device: torch.device | str = "cpu", *, advice: str = _ADVICE) -> dict[str, Any]:
    """Read a checkpoint; one that is damaged, foreign, newer or malicious is refused.

    Args:
        path: of the file.
        device: where its tensors go.
        advice: what a user should do about a damaged or foreign one; the default is that for a run to be continued.
    """
    _check_readable(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of foreign files, with advice for programmers
            content: Any = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # whatever torch and pickle make of foreign bytes; nothing of it was executed
        reason = _reason(path, error)
        raise RunError(f"{path} is damaged, or not a checkpoint of vsam: {reason}. {advice}") from error
    version = content.get("version") if isinstance(content, dict) and content.get("format") == _FORMAT else None
    if not isinstance(version, int):
        raise RunError(f"{path} was not written by vsam. {advice}")
    if version > _VERSION:
        raise RunError(f"{path} was written by a newer vsam (format {version}). Upgrade vsam to use it.")
    checked: dict[str, Any] = content
    return checked


def _check_readable(path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:  # torch reports damaged content by the same error
        raise RunError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RunError(f"{path} cannot be read: {error}.") from error


def _reason(path: Path, error: Exception) -> str:
    """What is wrong, in our words: torch's advise to load it without protection, or are a mere number."""
    if path.stat().st_size == 0:
        return "it is empty"
    if not zipfile.is_zipfile(path):
        return "it is not a whole file of torch's"
    if isinstance(error, pickle.UnpicklingError):
        return "it holds something else than tensors and plain values, which could run a program (it was not run)"
    return "its content cannot be understood"
