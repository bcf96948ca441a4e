"""A process that trains one large linear layer with one method and prints its memory as JSON."""

import gc
import json
import sys
from pathlib import Path

import torch
from torch import nn

from vsam.lab.bench.bases import BASES
from vsam.lab.bench.contestants import OURS, Entry
from vsam.lab.bench.peers import PEERS
from vsam.lab.bench.workloads import Problem

__all__ = ["main", "measure", "read_status"]

BATCH = 2


def read_status(name: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS for what is resident now, VmHWM for the most there ever was."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure(method: str, base: str, rows: int, columns: int, steps: int) -> dict[str, float]:
    """Resident memory in multiples of the parameters, kept after the steps and at their peak.

    A layer of `rows × columns` weights on a batch of two has activations of a few kilobytes. Its tensors are larger
    than what the C library keeps for later, so that memory is resident exactly while a tensor lives.
    """
    entry = _find(method)
    torch.set_num_threads(1)
    _train(entry, base, 8, 8, steps)  # everything that is loaded on first use is loaded now
    gc.collect()
    before = read_status("VmRSS")
    alive = _train(entry, base, rows, columns, steps)
    size = 4 * rows * columns
    kept, peak = read_status("VmRSS") - before, read_status("VmHWM") - before
    del alive
    return {"parameter_bytes": size, "kept": kept / size, "peak": peak / size}


def main() -> None:
    """Measure what the arguments say: method, base, rows, columns, steps."""
    method, base, *numbers = sys.argv[1:]
    rows, columns, steps = map(int, numbers)
    print(json.dumps(measure(method, base, rows, columns, steps)))


def _find(method: str) -> Entry:
    """The entry of that name; of vSAM's two the one that samples at every step."""
    return next(entry for entry in (*OURS, *PEERS) if entry.name == method)


def _train(entry: Entry, base: str, rows: int, columns: int, steps: int) -> object:
    model = nn.Linear(columns, rows, bias=False)
    problem = Problem(model, [(torch.randn(BATCH, columns), torch.zeros(BATCH, dtype=torch.long))])
    contestant = entry.make(problem, entry.base_of(BASES[base]))
    for _ in range(steps):
        contestant.step()
    return contestant


if __name__ == "__main__":
    main()
