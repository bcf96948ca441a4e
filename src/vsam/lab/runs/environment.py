"""What a result must state about where it was made."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import vsam
from vsam.lab.errors import UserError

__all__ = ["choose_device", "describe_environment"]


def choose_device(name: str | None = None) -> torch.device:
    """The device called `name`, or the best one there is."""
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).add_(1).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"There is no device {name!r} here: {reason}. Leave --device out to take the best.") from error
    if device.type == "meta":
        raise UserError("Device 'meta' computes nothing. Leave --device out to take the best one.")
    return device


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware and commit."""
    return {
        "vsam": vsam.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "device": _device_name(device),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": _commit(),
    }


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"CPU {_processor()}"
    return device.type


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the source tree that runs, marked where files were changed; None for an installed package."""
    here = Path(__file__).parent
    try:
        command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        tracked = ["git", "-C", str(here), "ls-files", "--error-unmatch", __file__]
        subprocess.run(tracked, capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
