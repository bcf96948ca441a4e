"""Meshes of two dimensions on four processes: HSDP, and FSDP2 over tensor parallelism, equal one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import vsam
from processes import assert_checks_pass

Make = Callable[..., vsam.SharpnessAware]
METHODS: dict[str, Make] = {
    "sam": lambda base, **o: vsam.SAM(base, rho=0.1, max_grad_norm=0.05, **o),
    "looksam": lambda base, **o: vsam.LookSAM(base, rho=0.1, every=2, **o),
    "vsam": lambda base, **o: vsam.VSAM(base, rho=0.1, start=2, window=4, slices=2, alpha=0.5, **o),
}


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def _trained(model: nn.Module, make: Make, rows: slice) -> vsam.SharpnessAware:
    optimizer = make(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model=model)
    for number in range(6):
        inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(number)).double()[rows]

        def closure(inputs: Tensor = inputs) -> Tensor:
            loss = (model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return optimizer


def _assert_like_one_process(shard: Callable[[nn.Module], Any], rows: slice) -> None:
    for name, make in METHODS.items():
        alone, model = _network(), _network()
        shard(model)
        reference, optimizer = _trained(alone, make, slice(None)), _trained(model, make, rows)
        assert optimizer.num_samples == reference.num_samples, name
        found: list[Any] = list(model.parameters())
        torch.testing.assert_close([p.full_tensor() for p in found], [p.detach() for p in alone.parameters()])


def check_weights_that_are_sharded_and_replicated(rank: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    _assert_like_one_process(lambda model: fully_shard(model, mesh=mesh), slice(2 * rank, 2 * rank + 2))


def check_shards_of_tensor_parallel_weights(rank: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))

    def shard(model: nn.Module) -> None:
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(model, mesh=mesh["data"])

    number = mesh["data"].get_local_rank()
    _assert_like_one_process(shard, slice(4 * number, 4 * number + 4))


@pytest.mark.slow
def test_on_four_processes(tmp_path: Path) -> None:
    assert_checks_pass(__file__, tmp_path, size=4)
