"""Several processes, each with its own first batch, start from the same step size."""

import subprocess
import sys

import pytest
import torch

from vsam.quantize import QuantLinear

PROGRAM = """
import sys
import torch
from vsam.quantize import QuantLinear

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
layer = QuantLinear(4, 2)
layer(torch.full((1 + 2 * rank, 4), float(1 + 2 * rank)))
torch.save(layer.activation_step.detach(), f"{folder}/{rank}.pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_all_processes_start_from_the_same_step(tmp_path):
    commands = ([sys.executable, "-c", PROGRAM, str(rank), str(tmp_path)] for rank in range(2))
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=900) for process in processes] == [0, 0]
    steps = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    alone = QuantLinear(4, 2)
    alone(torch.full((3, 4), 2.5))  # one sample of 1 and three of 3
    assert steps == [alone.activation_step, alone.activation_step]
