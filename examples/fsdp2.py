"""Sharded weights with FSDP2, saved and resumed: torchrun --nproc-per-node 2 examples/fsdp2.py [FOLDER]."""

import gc
import sys

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

import vsam


def build() -> tuple[nn.Module, vsam.VSAM]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    for module in (model[0], model[2], model):
        fully_shard(module)
    return model, vsam.VSAM(torch.optim.AdamW(model.parameters(), lr=0.003), model=model, budget=0.2)


def train(model: nn.Module, optimizer: vsam.VSAM, first: int, last: int) -> float:
    for step in range(first, last + 1):
        seed = 1_000 * torch.distributed.get_rank() + step
        inputs = torch.randn(50, 10, generator=torch.Generator().manual_seed(seed))

        def closure(inputs=inputs):
            loss = nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long())
            loss.backward()
            return loss

        loss = optimizer.step(closure)
    return loss.item()


def state_of(model: nn.Module, optimizer: vsam.VSAM) -> dict:
    return {"model": get_model_state_dict(model), "optimizer": vsam.distributed.StatefulOptimizer(model, optimizer)}


def save_and_resume(folder: str) -> None:
    model, optimizer = build()
    train(model, optimizer, 1, 40)
    torch.distributed.checkpoint.save(state_of(model, optimizer), checkpoint_id=folder)
    loss, (resumed, resumed_optimizer) = train(model, optimizer, 41, 60), build()
    torch.distributed.checkpoint.load(state := state_of(resumed, resumed_optimizer), checkpoint_id=folder)
    set_model_state_dict(resumed, state["model"])
    is_same = train(resumed, resumed_optimizer, 41, 60) == loss
    print(f"rank {torch.distributed.get_rank()}: loss {loss:.3f}, the same after resuming: {is_same}\n", end="")


def main() -> None:
    torch.distributed.init_process_group("gloo")  # "nccl" on GPUs
    save_and_resume(sys.argv[1] if len(sys.argv) > 1 else "checkpoint")
    gc.collect()  # torch 2.13 may hang if the model outlives its process group,
    torch.distributed.barrier()  # and abort if gloo's threads still hold tensors when Python ends
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
