"""Small things for the benchmark's tests: a workload of milliseconds, and turns that nobody had to wait for."""

import torch
from torch import nn

from vsam.lab.bench.contestants import OURS, Entry
from vsam.lab.bench.peers import PEERS
from vsam.lab.bench.timing import Turn
from vsam.lab.bench.workloads import Workload

TINY = Workload(
    "tiny",
    "one hidden layer",
    lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 10)),
    lambda: torch.randn(6, 4),
    burst=2,
)


def entry(name: str, keeps: bool | None = None) -> Entry:
    """The entry of that name; of vSAM's two the one for that kind of step."""
    found = [one for one in (*OURS, *PEERS) if one.name == name and one.keeps is keeps]
    assert len(found) == 1
    return found[0]


def turns(added: float, num_turns: int = 9, sampled: bool = True, noise: float = 0.01) -> list[Turn]:
    """Turns around a pass of 3 s and a base step of 1 s that add so many seconds, give or take `noise`."""
    middle = (num_turns - 1) / 2
    offsets = [noise * (number - middle) / middle for number in range(num_turns)]
    return [Turn(sampled, (7 if sampled else 4) + added + offset, 3.0, 1.0) for offset in offsets]
