"""Memory per rank under FSDP2: torchrun --nproc-per-node 2 benchmarks/fsdp2_memory.py none|sam|vsam.

Resident memory after eight steps and at their peak, beyond the sharded model, in multiples of all parameters. Subtract
the line of `none` (SGD with momentum alone) from a method's to see what the method adds. Set the environment variable
MALLOC_MMAP_THRESHOLD_=65536, or the C library keeps freed memory for itself.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import vsam

METHODS = {"sam": vsam.SAM, "vsam": vsam.VSAM}


def read_status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main(method: str) -> None:
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    model = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(8)))
    size = sum(4 * parameter.numel() for parameter in model.parameters())
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    base = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    optimizer = METHODS[method](base, model=model) if method in METHODS else None
    inputs = torch.randn(4, 2048)
    before = read_status("VmRSS")

    def closure() -> torch.Tensor:
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    for _ in range(8):
        if optimizer is None:
            base.zero_grad()
            closure()
            base.step()
        else:
            optimizer.step(closure)
    kept, peak = (read_status(name) - before for name in ("VmRSS", "VmHWM"))
    print(f"rank {torch.distributed.get_rank()}, {method}: kept {kept / size:.2f}, peak {peak / size:.2f}\n", end="")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
