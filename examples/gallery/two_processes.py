"""The same batches on one process and on two give the same losses: python examples/gallery/two_processes.py."""

import gc
import os
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import vsam

STEPS, BATCH = 120, 40


def train(rank: int, num_processes: int, port: int, folder: str) -> None:
    """Train in one process on its part of each batch."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=num_processes)
    record = _train(rank, num_processes)
    if rank == 0:
        torch.save(record, f"{folder}/{num_processes}.pt")
    gc.collect()  # torch 2.13 may hang if the model outlives its process group,
    torch.distributed.barrier()  # and abort if gloo's threads still hold tensors when Python ends
    torch.distributed.destroy_process_group()


def _train(rank: int, num_processes: int) -> dict[str, list[float]]:
    torch.manual_seed(0)
    inputs = torch.randn(1_000, 10, dtype=torch.double)
    targets = (inputs[:, 0] * inputs[:, 1] > 0).long()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2)).double())
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.VSAM(base, model=model, budget=0.2)  # model=: the DDP module, and nothing else changes

    losses, samples = [], []
    for step in range(STEPS):
        batch = torch.randint(1_000, (BATCH,)).tensor_split(num_processes)[rank]  # the same draw on all ranks

        def closure():
            loss = nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            return loss

        loss = optimizer.step(closure).detach()
        torch.distributed.all_reduce(loss)
        losses.append(loss.item() / num_processes)
        if optimizer.last.sampled:
            samples.append(step + 1)
    return {"losses": losses, "samples": samples}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main(out: str | Path = ".") -> dict[int, dict[str, list[float]]]:
    records = {}
    with TemporaryDirectory() as folder:
        for number in (1, 2):
            torch.multiprocessing.spawn(train, (number, free_port(), folder), nprocs=number)
            records[number] = torch.load(f"{folder}/{number}.pt")
    one, two = records[1], records[2]
    difference = max(abs(a - b) for a, b in zip(one["losses"], two["losses"], strict=True))
    print(f"largest difference of a loss: {difference:.1e}; same samples: {one['samples'] == two['samples']}")

    plt.rcParams["svg.hashsalt"] = "vsam"
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axes.plot(one["losses"], color="C1", linewidth=4, alpha=0.5, label="one process")
    axes.plot(two["losses"], color="C0", linewidth=1, label="two processes, half a batch each")
    axes.plot(two["samples"], [0] * len(two["samples"]), "|", color="C2", label="steps with a second gradient")
    axes.set(xlabel="step", ylabel="loss", title=f"largest difference {difference:.0e}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(Path(out) / "two_processes.svg", metadata={"Date": None})
    plt.close(figure)
    return records


if __name__ == "__main__":
    main(*sys.argv[1:])
