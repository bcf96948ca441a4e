"""`fully_shard`: two processes with half of the batch and half of the weights equal one process with all of both."""

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import vsam
from processes import assert_checks_pass, run_page
from vsam._step import foreach
from vsam._step.foreach import FlatBuffers
from vsam.distributed import shards

Make = Callable[..., vsam.SharpnessAware]
METHODS: dict[str, Make] = {
    "sam": lambda base, **o: vsam.SAM(base, rho=0.1, **o),
    "asam": lambda base, **o: vsam.ASAM(base, **o),
    "looksam": lambda base, **o: vsam.LookSAM(base, rho=0.1, every=3, **o),
    "ae-sam": lambda base, **o: vsam.AESAM(base, rho=0.1, total_steps=12, **o),
    "vsam": lambda base, **o: vsam.VSAM(base, rho=0.1, start=4, window=6, slices=3, alpha=0.5, **o),
    "vsam-a": lambda base, **o: vsam.VSAM(base, rho=0.1, gamma=0, start=4, window=6, slices=3, alpha=0.5, **o),
    "esam": lambda base, **o: vsam.ESAM(base, rho=0.1, gamma=1.0, **o),
}


def _network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Tensors of uneven length, and one of which the second process gets nothing."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype)


def _sharded(**settings: Any) -> nn.Sequential:
    model = _network(settings.pop("dtype", torch.float64))
    fully_shard(model[2], **settings)
    fully_shard(model, **settings)
    return model


def _base(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _batch(number: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(number)).to(dtype)


def _train(model: nn.Module, optimizer: vsam.SharpnessAware, rows: slice, steps: range = range(12)) -> None:
    for number in steps:
        inputs = _batch(number, next(model.parameters()).dtype)[rows]

        def losses(keep: Tensor | None = None, inputs: Tensor = inputs) -> Tensor:
            chosen = inputs if keep is None else inputs[keep]
            return (model(chosen) - chosen.sum(1, keepdim=True).sin()).square().mean(1)

        def closure(losses: Callable[[], Tensor] = losses) -> Tensor:
            loss = losses().mean()
            loss.backward()
            return loss

        optimizer.step(losses if isinstance(optimizer, vsam.ESAM) else closure)


def _half(rank: int) -> slice:
    return slice(4 * rank, 4 * rank + 4)


def _full(tensors: Any) -> list[Tensor]:
    return [tensor.full_tensor() for tensor in tensors]


def check_every_method_equals_the_run_of_one_process(rank: int, folder: Path) -> None:
    for name, make in METHODS.items():
        alone = _network()
        reference = make(_base(alone), model=alone)
        _train(alone, reference, slice(None))
        model = _sharded()
        optimizer = make(_base(model), model=model)
        _train(model, optimizer, _half(rank))
        assert optimizer.num_samples == reference.num_samples, name
        torch.testing.assert_close(_full(model.parameters()), [p.detach() for p in alone.parameters()])
        expected = reference.state_dict()["sharpness"]["memory"]
        memory = optimizer.state_dict()["sharpness"]["memory"]
        torch.testing.assert_close(dict(zip(memory, _full(memory.values()), strict=True)), expected)
        states, others = (o.state_dict()["sharpness"]["states"][0] for o in (optimizer, reference))
        torch.testing.assert_close(states, others)


def check_psf_and_copy_of_the_weights_stay_sharded(rank: int, folder: Path) -> None:
    model = _sharded()
    optimizer = METHODS["vsam"](_base(model), model=model)
    seen: list[int] = []
    weights = set(model.parameters())

    def closure() -> Tensor:
        loss = model(_batch(0)).square().mean()
        loss.backward()
        if optimizer.is_second_pass:
            alive = gc.get_objects()
            kept = [buffer for thing in alive if type(thing) is FlatBuffers for buffer in thing.buffers]
            seen.append(sum(buffer.numel() for buffer in kept))
            undoing = [thing for thing in alive if type(thing) is partial and thing.func is foreach.copy_]
            backups = [copied for thing in undoing for copied in thing.args[1] if thing.args[0][0] in weights]
            seen.append(sum(copied.to_local().numel() for copied in backups))
        return loss

    optimizer.step(closure)
    shard = sum(parameter.to_local().numel() for parameter in model.parameters())  # type: ignore[attr-defined]
    assert shard < sum(parameter.numel() for parameter in model.parameters())
    assert [0 < number <= shard for number in seen] == [True, True], (seen, shard)
    memory = optimizer.state_dict()["sharpness"]["memory"]
    assert [value.placements for value in memory.values()] == [p.placements for p in model.parameters()]  # type: ignore


def check_the_distance_is_rho_and_the_weights_come_back_to_the_bit(rank: int, folder: Path) -> None:
    model = _sharded(dtype=torch.float32)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.0), model=model, rho=0.5)
    before = _full(model.parameters())
    moved: list[Tensor] = []

    def closure() -> Tensor:
        loss = model(_batch(rank, torch.float32)).square().mean()
        loss.backward()
        if optimizer.is_second_pass:
            moved.extend(_full(model.parameters()))
        with torch.no_grad():
            model(_batch(3, torch.float32))  # leaves weights gathered, which must not be taken for the current ones
        return loss

    first = optimizer.step(closure)
    offset = torch.cat([(a - b).flatten() for a, b in zip(moved, before, strict=True)])
    torch.testing.assert_close(offset.norm(), torch.tensor(0.5))
    with torch.no_grad():
        after = model(_batch(rank, torch.float32)).square().mean()
    assert torch.equal(first.detach(), after)
    for module in (model, model[2]):
        module.reshard()  # type: ignore[operator]
    assert all(torch.equal(a, b) for a, b in zip(_full(model.parameters()), before, strict=True))


def check_mixed_precision_policy(rank: int, folder: Path) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = _sharded(dtype=torch.float32, mp_policy=policy)
    optimizer = METHODS["vsam"](_base(model), model=model)
    _train(model, optimizer, _half(rank))
    alone = _network(torch.float32)
    reference = METHODS["vsam"](_base(alone), model=alone)
    _train(alone, reference, slice(None))
    assert optimizer.num_samples == reference.num_samples
    torch.testing.assert_close(
        _full(model.parameters()), [p.detach() for p in alone.parameters()], atol=0.05, rtol=0.05
    )
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def check_a_rank_that_is_not_finite_makes_all_skip(rank: int, folder: Path) -> None:
    model = _sharded()
    optimizer = METHODS["sam"](_base(model), model=model)
    before = _full(model.parameters())
    inputs = _batch(0) * (float("nan") if rank == 1 else 1.0)
    model(inputs).square().mean().backward()
    assert optimizer.perturb()
    model(inputs).square().mean().backward()
    with pytest.warns(RuntimeWarning, match="not finite"):
        optimizer.step()
    assert optimizer.num_skipped == 1
    assert all(torch.equal(a, b) for a, b in zip(_full(model.parameters()), before, strict=True))


def check_one_rank_may_listen(rank: int, folder: Path) -> None:
    model = _sharded()
    optimizer = METHODS["vsam"](_base(model), model=model)
    records: list[vsam.StepRecord] = []
    if rank == 0:
        optimizer.subscribe(records.append)
    _train(model, optimizer, _half(rank))
    assert all(record.grad_norm is not None for record in records)
    assert all((record.psf_norm is not None) is record.sampled for record in records)


def check_how_many_numbers_are_summed_over_the_shards(rank: int, folder: Path) -> None:
    """As docs/loops/distributed.md says: at a plain step, and at a sampled one."""
    numbers: list[int] = []
    original = shards.over_all
    shards.over_all = lambda *arguments: (numbers.append(1), original(*arguments))[1]  # type: ignore[assignment]
    try:
        for name, expected in {"sam-3": (1, 2), "vsam": (1, 5), "looksam": (1, 7)}.items():
            model = _sharded()
            make = METHODS[name] if name in METHODS else lambda base, **options: vsam.SAM(base, every=3, **options)
            optimizer = make(_base(model), model=model)
            found = set()
            for number in range(6):
                numbers.clear()
                _train(model, optimizer, _half(rank), range(number, number + 1))
                found.add((optimizer.last.sampled, len(numbers)))  # type: ignore[union-attr]
            assert found == {(False, expected[0]), (True, expected[1])}, (name, found)
    finally:
        shards.over_all = original


def check_the_page_runs(rank: int, folder: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.Linear(7, 1))
    model.layers = [model[0]]  # type: ignore[assignment]
    names: dict[str, Any] = {"torch": torch, "model": model, "fully_shard": fully_shard}
    run_page("diff", "FSDP2", names)
    names["optimizer"].step(lambda: model(_batch(rank, torch.float32)).square().mean().backward())
    assert names["optimizer"].num_samples == 1


def check_what_cannot_work_is_refused(rank: int, folder: Path) -> None:
    model = _sharded()
    with pytest.raises(ValueError, match="model= is needed"):
        vsam.SAM(_base(model))
    with pytest.raises(ValueError, match="sync='rank' needs all weights"):
        vsam.SAM(_base(model), model=model, sync="rank")
    from torch.distributed.fsdp import FullyShardedDataParallel

    for use_original in (False, True):
        old = FullyShardedDataParallel(
            _network(torch.float32), use_orig_params=use_original, device_id=torch.device("cpu")
        )
        for given in (None, old):
            with pytest.raises(ValueError, match=r"FSDP1.*fully_shard"):
                vsam.SAM(torch.optim.SGD(old.parameters(), lr=0.1), model=given)


def check_tensor_parallel_weights(rank: int, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    for name in ("sam", "asam", "looksam", "vsam"):
        alone, model = (nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double() for _ in range(2))
        model.load_state_dict(alone.state_dict())
        for parameter in alone.parameters():
            torch.distributed.broadcast(parameter.detach(), 0)
        model.load_state_dict(alone.state_dict())
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, init_device_mesh("cpu", (2,)), plan)  # type: ignore[arg-type]
        reference, optimizer = (METHODS[name](_base(module), model=module) for module in (alone, model))
        _train(alone, reference, slice(None))
        _train(model, optimizer, slice(None))
        torch.testing.assert_close(_full(model.parameters()), [p.detach() for p in alone.parameters()])


@pytest.mark.slow
def test_on_two_processes(tmp_path: Path) -> None:
    assert_checks_pass(__file__, tmp_path)
