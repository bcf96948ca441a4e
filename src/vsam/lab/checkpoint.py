"""Checkpoints of runs: written whole or not at all, read without executing anything."""

import io
from pathlib import Path
from typing import Any

import torch

from vsam.lab.errors import RunError
from vsam.lab.files import write_atomically

__all__ = ["load_checkpoint", "save_checkpoint"]

_FORMAT, _VERSION = "vsam-run", 1


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write `content` with the mark by which `load_checkpoint` knows it."""
    buffer = io.BytesIO()  # torch's own writer hides the reason when a disk is full
    torch.save({"format": _FORMAT, "version": _VERSION, **content}, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint; one that is damaged, foreign, newer or malicious is refused."""
    try:
        content: Any = torch.load(path, map_location=device, weights_only=True)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # whatever torch and pickle make of foreign bytes; nothing of it was executed
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(
            f"{path} is damaged, or not a checkpoint of vsam: {reason} "
            "Delete it to start this run afresh, or choose another folder with --out."
        ) from error
    version = content.get("version") if isinstance(content, dict) and content.get("format") == _FORMAT else None
    if not isinstance(version, int):
        raise RunError(f"{path} was not written by vsam. Choose another folder with --out.")
    if version > _VERSION:
        raise RunError(f"{path} was written by a newer vsam (format {version}). Upgrade vsam to use it.")
    checked: dict[str, Any] = content
    return checked
