"""Several processes with DDP: torchrun --nproc-per-node 2 examples/ddp.py [global|rank]."""

import gc
import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import vsam


def train(sync: str) -> list[float]:
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    points = torch.randn(1_000, 10)
    dataset = TensorDataset(points, (points[:, 0] * points[:, 1] > 0).long())
    sampler: DistributedSampler = DistributedSampler(dataset, drop_last=True)  # the same number of batches on all ranks
    loader = DataLoader(dataset, batch_size=50, sampler=sampler)
    criterion = nn.CrossEntropyLoss()

    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2)))
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = vsam.VSAM(base, model=model, budget=0.2, sync=sync)

    losses = []
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:

            def closure():
                loss = criterion(model(inputs), targets)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
    total = sum(parameter.detach().double().sum() for parameter in model.parameters())
    print(
        f"rank {rank}: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {optimizer.num_samples} samples, weights {total}\n",
        end="",
    )
    return losses


def main() -> list[float]:
    torch.distributed.init_process_group("gloo")  # "nccl" on GPUs
    losses = train("rank" if "rank" in sys.argv else "global")
    gc.collect()  # torch 2.13 may hang if the model outlives its process group,
    torch.distributed.barrier()  # and abort if gloo's threads still hold tensors when Python ends
    torch.distributed.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
