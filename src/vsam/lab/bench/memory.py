"""How much memory a method needs beyond the base alone, in multiples of the parameters; one process per method."""

import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vsam.lab.bench.bases import BASES
from vsam.lab.bench.contestants import OURS, Entry
from vsam.lab.bench.peers import PEERS
from vsam.lab.bench.workloads import Problem
from vsam.lab.errors import RunError, UserError

__all__ = [
    "HUGE",
    "PROMISED",
    "USUAL",
    "Memory",
    "Size",
    "beyond",
    "check_room",
    "is_measurable",
    "main",
    "measure_memory",
    "read_status",
]

PROMISED = {
    "sam": (0, 1),
    "sam-5": (0, 1),
    "asam": (0, 1),
    "looksam-5": (1, 2),
    "ae-sam": (0, 1),
    "esam": (0, 1),
    "vsam": (1, 2),
    "vsam-a": (0, 1),
    "vsam-budget": (1, 2),
    "sam-part": (0, 1),
    "tail": (1, 2),
    "bernoulli": (1, 2),
    "displaced": (0, 1),
    "sam-10": (0, 1),
    "sam-on": (0, 1),
    "friendly-sam": (1, 3),
    "gsam": (0, 2),
    "wsam": (0, 2),
    "msam": (0, 1),
    "sgd": (0, 0),
    "mesa": (1, 0),
}
"""What the README promises: kept between steps, and on top of that in the second pass."""

_BATCH = 2
_TOLERANCE = 0.05  # of the parameters: activations, caches, and rounding by the C library


@dataclass(frozen=True)
class Size:
    """The weights of the trained layer, and the number of steps."""

    rows: int
    columns: int
    steps: int

    @property
    def num_bytes(self) -> int:
        """Of the weights."""
        return 4 * self.rows * self.columns


USUAL = Size(4096, 4096, 8)
HUGE = Size(20_000, 25_000, 3)
"""500 million weights in one tensor."""


@dataclass(frozen=True)
class Memory:
    """A method's memory beyond the base alone, in multiples of the parameters.

    Args:
        method: by name.
        kept: between steps.
        extra: on top of that, at the peak of a step.
        parameter_bytes: the size of the parameters.
    """

    method: str
    kept: float
    extra: float
    parameter_bytes: int

    @property
    def promise(self) -> tuple[int, int] | None:
        """What the README promises for it."""
        return PROMISED.get(self.method)

    @property
    def is_within_promise(self) -> bool | None:
        """Whether the promise holds."""
        if self.promise is None:
            return None
        kept, extra = self.promise
        return self.kept <= kept + _TOLERANCE and self.kept + self.extra <= kept + extra + _TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "promise": self.promise, "is_within_promise": self.is_within_promise}


def is_measurable() -> bool:
    """Whether this system reports a process's resident memory."""
    return Path("/proc/self/status").exists()


def check_room(size: Size, copies: int = 7) -> None:
    """Raise if this would not fit: weights, gradients, momentum, and vSAM's tensors at the peak."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = meminfo.read_text(encoding="ascii").splitlines()
        available = next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), available)
    needed = copies * size.num_bytes
    if available < needed:
        raise UserError(
            f"--huge needs {needed / 2**30:.0f} GiB of free memory, but {available / 2**30:.0f} GiB are free."
        )


def measure_memory(method: str, base: str, size: Size) -> dict[str, float]:
    """The method's kept and peak memory as reported by its process, including the base."""
    command = [sys.executable, "-c", f"from {__name__} import main; main()", method, base]
    command += [str(number) for number in (size.rows, size.columns, size.steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise RunError(f"Measuring the memory of {method} failed: {reason[0]}")
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def beyond(method: str, own: dict[str, float], base: dict[str, float]) -> Memory:
    """A method's memory minus the base's; its peak is on top of what it keeps."""
    kept = own["kept"] - base["kept"]
    peak = own["peak"] - base["peak"]
    return Memory(method, kept, peak - kept, int(own["parameter_bytes"]))


def read_status(name: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS is resident memory now, VmHWM its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _measure(method: str, base: str, size: Size) -> dict[str, float]:
    """Resident memory in multiples of the parameters, kept after the steps and at their peak.

    A layer of `rows × columns` weights on a batch of two has activations of a few kilobytes. Its tensors are too large
    for the C library to cache, so memory is resident exactly while a tensor is alive.
    """
    entry = next(entry for entry in (*OURS, *PEERS) if entry.name == method)  # of vSAM's two, the one that samples
    torch.set_num_threads(1)
    _train(entry, base, Size(8, 8, size.steps))  # loads everything that is loaded on first use
    gc.collect()
    before = read_status("VmRSS")
    alive = _train(entry, base, size)
    kept, peak = read_status("VmRSS") - before, read_status("VmHWM") - before
    del alive
    return {"parameter_bytes": size.num_bytes, "kept": kept / size.num_bytes, "peak": peak / size.num_bytes}


def _train(entry: Entry, base: str, size: Size) -> object:
    model = nn.Linear(size.columns, size.rows, bias=False)
    problem = Problem(model, [(torch.randn(_BATCH, size.columns), torch.zeros(_BATCH, dtype=torch.long))])
    contestant = entry.make(problem, entry.base_of(BASES[base]))
    for _ in range(size.steps):
        contestant.step()
    return contestant


def main() -> None:
    """Entry point of the fresh process: its arguments are method, base, rows, columns and steps."""
    method, base, *numbers = sys.argv[1:]
    print(json.dumps(_measure(method, base, Size(*map(int, numbers)))))
