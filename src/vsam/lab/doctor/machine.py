"""Checks of the machine: versions, device, threads and datasets."""

import importlib.metadata
import importlib.util
import os
from pathlib import Path

import torch

from vsam.lab import data
from vsam.lab.doctor.finding import Finding, note, ok, problem
from vsam.lab.runs.environment import choose_device, describe_environment

__all__ = ["check_machine"]

_OLDEST_TORCH = (2, 6)
_EXTRAS = ("tensorboard", "optuna", "ray", "lightning", "accelerate", "transformers")


def check_machine(data_dir: Path | None = None) -> list[Finding]:
    """What is available, and what is wrong with it."""
    return [_versions(), _extras(), _device(), _threads(), *_data(data_dir)]


def _versions() -> Finding:
    facts = describe_environment(torch.device("cpu"))
    text = f"vsam {facts['vsam']}, torch {facts['torch']}, Python {facts['python']}, {facts['system']}"
    number = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if number < _OLDEST_TORCH:
        return problem("versions", f"{text}. vsam needs torch 2.6 or newer: pip install -U torch.")
    return ok("versions", text)


def _extras() -> Finding:
    found = [f"{name} {importlib.metadata.version(name)}" for name in _EXTRAS if importlib.util.find_spec(name)]
    return ok("extras", ", ".join(found) or "none installed")


def _device() -> Finding:
    device = choose_device()
    text = f"{describe_environment(device)['device']} ({device.type})"
    if device.type == "cpu" and torch.version.cuda is not None:
        return note("device", f"{text}. torch was built for CUDA {torch.version.cuda}, but found no GPU.")
    return ok("device", text)


def _threads() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    text = f"{threads} for {cores} cores"
    if threads > cores:
        return problem("threads", f"{text}: more threads than cores slow each other down. Set OMP_NUM_THREADS={cores}.")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > cores + threads:
        return note("threads", f"{text}. The machine is busy (load {load:.1f}): times will vary.")
    return ok("threads", text)


def _data(data_dir: Path | None) -> list[Finding]:
    described = [one for one in data.describe(data_dir) if one.name != "folder"]
    found = [one.name for one in described if one.found]
    missing = [one.name for one in described if not one.found and not one.damage]
    findings = [problem("data", f"{one.name} is damaged. {one.damage}") for one in described if one.damage]
    text = f"found {', '.join(found) or 'none'}"
    if missing:
        text += f"; not here yet: {', '.join(missing)} (`vsam data` says how to get them)"
    return [ok("data", text), *findings]
