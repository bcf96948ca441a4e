"""Accelerate with vSAM: one function per micro-batch, and `step` runs each of them once or twice.

Needs `pip install 'vsam[accelerate]'`. Runs on one process as it is, on several with `accelerate launch`.
"""

import gc
from functools import partial
from itertools import islice

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import vsam
from vsam.integrations.accelerate import step


def train() -> tuple[list[float], vsam.VSAM]:
    torch.manual_seed(0)
    points = torch.randn(1_024, 10)
    labels = (points[:, 0] * points[:, 1] > 0).long()
    loader = DataLoader(TensorDataset(points, labels), batch_size=32)
    model = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    method = vsam.VSAM(base, model=model, budget=0.2, max_grad_norm=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(method, T_max=160)
    model, optimizer, loader, scheduler = accelerator.prepare(model, method, loader, scheduler)

    def closure(inputs: Tensor, targets: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)  # divides by gradient_accumulation_steps
        return loss

    losses = []
    for _ in range(20):
        batches = iter(loader)
        while micro_batches := list(islice(batches, 4)):
            loss = step(accelerator, optimizer, [partial(closure, *batch) for batch in micro_batches])
            scheduler.step()
            losses.append(loss.item())

    accelerator.print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    accelerator.print(f"{method.num_samples} second gradients in {len(losses)} steps")
    return losses, method


def main() -> tuple[list[float], vsam.VSAM] | None:
    result = train()
    if torch.distributed.is_initialized():  # with `accelerate launch` on several processes
        result = None
        gc.collect()  # torch 2.13 may hang if the model outlives its process group,
        torch.distributed.barrier()  # and abort if gloo's threads still hold tensors when Python ends
        torch.distributed.destroy_process_group()
    return result


if __name__ == "__main__":
    main()
