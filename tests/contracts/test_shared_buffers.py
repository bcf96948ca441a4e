"""Both passes may write their gradients into the same buffers: PSF = gs − g all the same."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import vsam
from contract_table import Run, assert_same, every_method, losses_of
from processes import assert_checks_pass
from vsam._step import foreach


@every_method
def test_a_closure_that_fills_its_own_buffers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreach, "_SMALL", 20)  # some of the network's tensors are above, some below
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


def check_gradients_that_are_views_of_ddps_buckets(rank: int, folder: Path) -> None:
    width = 1 + math.isqrt(foreach._SMALL)  # so that the tensor itself is at stake, not a copy beside others
    model = _network(width)
    inputs = torch.randn(8, width, generator=torch.Generator().manual_seed(1))
    # A bucket of the size of one tensor, so that its gradient is the whole bucket.
    settings: dict[str, Any] = {"gradient_as_bucket_view": True, "bucket_cap_mb": 4 * width * width / 2**20}
    psf = _psf(DistributedDataParallel(model, **settings), model, inputs)
    alone = _network(width)
    torch.testing.assert_close(psf, _psf(alone, alone, inputs))


@pytest.mark.slow
def test_on_two_processes(tmp_path: Path) -> None:
    assert_checks_pass(__file__, tmp_path)
