"""Both passes may write their gradients into the same buffers: PSF = gs − g all the same."""

import gc
import math
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import vsam
from contract_table import Run, assert_same, every_method, losses_of
from vsam import tensors


@every_method
def test_a_closure_that_fills_its_own_buffers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_SMALL", 20)  # some of the network's tensors are above, some below
    expected, run = Run(method, "momentum").go(last=8), Run(method, "momentum")
    buffers = {parameter: torch.zeros_like(parameter) for parameter in run.model.parameters()}

    def losses(number: int, keep: Tensor | None = None) -> Tensor:
        run.num_passes += torch.is_grad_enabled()
        return losses_of(run.model, number, keep)

    for parameter in run.model.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p: setattr(p, "grad", buffers[p].copy_(p.grad))  # type: ignore[arg-type]
        )
    run.losses = losses  # type: ignore[method-assign]
    run.go(last=8)
    assert_same(run.weights(), expected.weights())
    assert_same(run.optimizer.state_dict()["sharpness"], expected.optimizer.state_dict()["sharpness"])


def _psf(model: nn.Module, trained: nn.Module, inputs: Tensor) -> Tensor:
    """The PSF of the first step, as vSAM remembers it."""
    optimizer = vsam.VSAM(torch.optim.SGD(trained.parameters(), lr=0.0), model=model, rho=0.5, start=1)

    def closure() -> Tensor:
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    memory = optimizer.state_dict()["sharpness"]["memory"]
    return torch.cat([memory[i].flatten() for i in sorted(memory)])


def _network(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(3)))


def _worker(rank: int, port: int, width: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    model = _network(width)
    inputs = torch.randn(8, width, generator=torch.Generator().manual_seed(1))
    # A bucket of the size of one tensor, so that its gradient is the whole bucket.
    settings: dict[str, Any] = {"gradient_as_bucket_view": True, "bucket_cap_mb": 4 * width * width / 2**20}
    psf = _psf(DistributedDataParallel(model, **settings), model, inputs)
    torch.save(psf, Path(folder) / f"{rank}.pt")
    gc.collect()  # a model in a reference cycle keeps its process group, whose threads abort at exit
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_gradients_that_are_views_of_ddps_buckets(tmp_path: Path) -> None:
    width = 1 + math.isqrt(tensors._SMALL)  # so that the tensor itself is at stake, not a copy beside others
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    workers = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(port), str(width), str(tmp_path)], env=environment)
        for rank in range(2)
    ]
    assert [worker.wait(timeout=900) for worker in workers] == [0, 0]
    model = _network(width)
    inputs = torch.randn(8, width, generator=torch.Generator().manual_seed(1))
    expected = _psf(model, model, inputs)
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"{rank}.pt", weights_only=True), expected)


if __name__ == "__main__":
    _worker(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
