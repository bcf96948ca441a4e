"""The environment of a result: versions, hardware, commit."""

import os
import platform
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import vsam
from vsam.lab.errors import UserError

__all__ = ["choose_device", "commit_of", "describe_environment"]


def choose_device(name: str | None = None) -> torch.device:
    """The device called `name`, or the best one available."""
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).add_(1).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"There is no device {name!r} here: {reason}. Leave out --device to use the best.") from error
    if device.type == "meta":
        raise UserError("Device 'meta' computes nothing. Leave out --device to use the best one.")
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
        "commit": commit_of(Path(vsam.__file__).resolve().parents[2]),
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


def commit_of(root: Path) -> str | None:
    """The commit of vsam's own source tree at `root`, marked if files were changed, or None if it is not one.

    Git obeys the settings of the repository it finds, some of which name programs to run. So repositories that merely
    enclose the package are ignored, and those settings are switched off.
    """
    if not (root / ".git").exists() or _project(root) != "vsam":
        return None
    settings = ["-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"]
    command = ["git", *settings, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    surroundings |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_CEILING_DIRECTORIES": str(root.parent)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=surroundings)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _project(root: Path) -> str | None:
    """The name in the `pyproject.toml` of a source tree."""
    try:
        return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
