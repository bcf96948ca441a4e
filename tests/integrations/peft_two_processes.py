"""Checks of Bi-LoRA on two processes."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from peft_net import auxiliary, batches, make, momentum, weights
from vsam.integrations.peft import BiLoRA


def check_ddp_equals_the_whole_batch(rank: int, folder: Path) -> None:
    """Each rank has half of each batch, in two micro-batches, and starts from another auxiliary adapter."""
    model, whole = make().train(), make().train()
    groups = [torch.distributed.new_group([one]) for one in range(2)]
    alone = DistributedDataParallel(whole, process_group=groups[rank])
    expected = BiLoRA(momentum(whole), model=whole, rho=0.1)
    torch.manual_seed(rank)
    optimizer = BiLoRA(momentum(model), model=model, rho=0.1)
    ddp = DistributedDataParallel(model)
    for one, start in zip(auxiliary(expected), _drawn_by_rank_0(), strict=True):
        one.copy_(start)
    for inputs, labels in batches(6):
        expected.zero_grad()
        cross_entropy(alone(inputs), labels).backward()
        expected.step()
        halves = [*zip(inputs.split(4), labels.split(4), strict=True)][2 * rank : 2 * rank + 2]
        optimizer.zero_grad()
        with ddp.no_sync():
            (cross_entropy(ddp(halves[0][0]), halves[0][1]) / 2).backward()
        (cross_entropy(ddp(halves[1][0]), halves[1][1]) / 2).backward()
        optimizer.step()
    torch.testing.assert_close(
        weights(model) + auxiliary(optimizer), weights(whole) + auxiliary(expected), rtol=1e-9, atol=1e-9
    )
    flat = torch.cat([one.flatten() for one in auxiliary(optimizer)])
    both = [torch.empty_like(flat) for _ in range(2)]
    torch.distributed.all_gather(both, flat)
    assert torch.equal(*both)


def _drawn_by_rank_0() -> list[Tensor]:
    model = make()
    torch.manual_seed(0)
    return auxiliary(BiLoRA(momentum(model), model=model))


def check_a_scaler_skips_on_all_ranks(rank: int, folder: Path) -> None:
    model = make().train()
    optimizer = BiLoRA(momentum(model), model=model, rho=0.1)
    ddp, scaler = DistributedDataParallel(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step, (inputs, labels) in enumerate(batches(4)):
        model.zero_grad()
        factor = torch.inf if (step, rank) == (2, 1) else 1.0
        scaler.scale(cross_entropy(ddp(inputs[rank::2]), labels[rank::2]) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512
    assert all(one.isfinite().all() for one in auxiliary(optimizer))


def check_a_model_outside_of_ddp_is_refused(rank: int, folder: Path) -> None:
    model = make().train()
    optimizer = BiLoRA(momentum(model), model=model)
    cross_entropy(model(batches(1)[0][0]), batches(1)[0][1]).backward()
    with pytest.raises(RuntimeError, match="wrap it in DistributedDataParallel"):
        optimizer.step()
