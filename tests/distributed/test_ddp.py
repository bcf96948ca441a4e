"""DDP: `sync`, what is communicated, ranks that disagree, skip or fail."""

import datetime
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel

import vsam
from processes import assert_checks_pass, run_page

Make = Callable[..., vsam.SharpnessAware]
RULE = {"start": 4, "window": 6, "slices": 3, "alpha": 0.5, "initial_samples": 2}
METHODS: dict[str, Make] = {
    "sam": lambda base, **o: vsam.SAM(base, rho=0.1, **o),
    "sam-3": lambda base, **o: vsam.SAM(base, rho=0.1, every=3, **o),
    "looksam": lambda base, **o: vsam.LookSAM(base, rho=0.1, every=3, **o),
    "ae-sam": lambda base, **o: vsam.AESAM(base, rho=0.1, total_steps=12, **o),
    "vsam": lambda base, **o: vsam.VSAM(base, rho=0.1, **RULE, **o),
    "vsam-a": lambda base, **o: vsam.VSAM(base, rho=0.1, gamma=0, watch=2, **RULE, **o),
    "budget": lambda base, **o: vsam.VSAM(base, rho=0.1, budget=0.4, **o),
}


class Training:
    """A DDP model in training, with its all-reduces of gradients counted."""

    def __init__(self, make: Make, group: Any = None, **options: Any) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double()
        self.ddp = DistributedDataParallel(self.network, process_group=group)
        self.num_reductions = 0
        self.ddp.register_comm_hook(None, self._reduce)  # type: ignore[arg-type]
        base = torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9)
        self.optimizer = make(base, model=self.ddp, **options)

    def _reduce(self, state: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        self.num_reductions += 1
        size = torch.distributed.get_world_size()
        work = torch.distributed.all_reduce(bucket.buffer().div_(size), async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: done.value()[0])

    def backward(self, inputs: Tensor) -> Tensor:
        loss = loss_of(self.ddp, inputs)
        loss.backward()
        return loss

    def train(self, rank: int, steps: range = range(12)) -> None:
        for number in steps:
            inputs = half(rank, number)
            self.optimizer.step(lambda inputs=inputs: self.backward(inputs))  # type: ignore[misc]

    def train_without_closure(self, rank: int, steps: range = range(12)) -> None:
        for number in steps:
            inputs = half(rank, number)
            self.optimizer.zero_grad()
            with self.optimizer.no_sync():
                self.backward(inputs)
            if self.optimizer.perturb():
                self.backward(inputs)
            self.optimizer.step()

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.network.parameters()]


def loss_of(model: nn.Module, inputs: Tensor) -> Tensor:
    return (model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()


def half(rank: int, number: int) -> Tensor:
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(number)).double()[4 * rank : 4 * rank + 4]


def assert_equal_on_all_ranks(training: Training) -> None:
    entry = training.optimizer.state_dict()["sharpness"]
    memory = entry.pop("memory")
    found: list[Any] = [None, None]
    torch.distributed.all_gather_object(found, (training.weights(), memory, entry))
    (weights, memories, entries), others = found
    assert all(map(torch.equal, weights, others[0]))
    assert all(torch.equal(value, others[1][i]) for i, value in memories.items())
    assert entries == others[2]


def check_half_batches_equal_the_whole_batch(rank: int, folder: Path) -> None:
    for name, make in METHODS.items():
        training = Training(make)
        alone = Training(make).network
        optimizer = make(torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9), model=alone)
        training.train(rank)
        for number in range(12):

            def closure(number: int = number) -> Tensor:
                loss = loss_of(alone, torch.cat([half(0, number), half(1, number)]))  # noqa: B023
                loss.backward()
                return loss

            optimizer.step(closure)
        assert optimizer.num_samples == training.optimizer.num_samples, name
        torch.testing.assert_close(training.weights(), [p.detach() for p in alone.parameters()])
        assert training.num_reductions == 12 + optimizer.num_samples, name


def check_each_rank_perturbs_along_its_own_gradient(rank: int, folder: Path) -> None:
    """The update of SAM is the mean over the ranks of the gradients at w + ρ g_r/‖g_r‖."""
    training = Training(METHODS["sam"], sync="rank")
    twin = Training(METHODS["sam"]).network
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
    training.train(rank, range(3))
    for number in range(3):
        sums = [torch.zeros_like(parameter) for parameter in twin.parameters()]
        for other in range(2):
            gradients = torch.autograd.grad(loss_of(twin, half(other, number)), list(twin.parameters()))
            norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
            before = [parameter.detach().clone() for parameter in twin.parameters()]
            with torch.no_grad():
                for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
                    parameter += 0.1 * gradient / norm
            sharp = torch.autograd.grad(loss_of(twin, half(other, number)), list(twin.parameters()))
            with torch.no_grad():
                for parameter, value, total, gradient in zip(twin.parameters(), before, sums, sharp, strict=True):
                    parameter.copy_(value)
                    total += gradient / 2
        for parameter, total in zip(twin.parameters(), sums, strict=True):
            parameter.grad = total
        optimizer.step()
    torch.testing.assert_close(training.weights(), [p.detach() for p in twin.parameters()])


def check_a_share_of_each_rank_is_a_share_of_the_whole_batch(rank: int, folder: Path) -> None:
    """By the averaged gradient of the parts, or with `sync="rank"` by each rank's own."""
    for sync in ("global", "rank"):
        training = Training(METHODS["sam"], share=0.5, sync=sync)
        twin = Training(METHODS["sam"]).network
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.05, momentum=0.9)
        parameters = list(twin.parameters())
        for number in range(4):
            inputs = half(rank, number)
            training.optimizer.step(lambda share=1.0, x=inputs: training.backward(x[: round(share * len(x))]))  # noqa: B023
            parts = [half(other, number)[:2] for other in range(2)]
            parts = parts if sync == "rank" else [torch.cat(parts)] * 2
            sums = [torch.zeros_like(parameter) for parameter in parameters]
            for other in range(2):
                gradients = torch.autograd.grad(loss_of(twin, parts[other]), parameters)
                norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
                before = [parameter.detach().clone() for parameter in parameters]
                with torch.no_grad():
                    torch._foreach_add_(parameters, gradients, alpha=0.1 / float(norm))
                sharp = torch.autograd.grad(loss_of(twin, half(other, number)), parameters)
                with torch.no_grad():
                    torch._foreach_copy_(parameters, before)
                    torch._foreach_add_(sums, sharp, alpha=0.5)
            for parameter, total in zip(parameters, sums, strict=True):
                parameter.grad = total
            optimizer.step()
        torch.testing.assert_close(training.weights(), [p.detach() for p in parameters])
        assert_equal_on_all_ranks(training)
        assert training.num_reductions == (8 if sync == "global" else 4), sync


def check_ranks_stay_equal_and_save_an_all_reduce(rank: int, folder: Path) -> None:
    for name, make in METHODS.items():
        training = Training(make, sync="rank")
        training.train(rank)
        assert_equal_on_all_ranks(training)
        samples = training.optimizer.num_samples
        # A sampled step reduces once, not twice. AE-SAM decides after the gradient, which it averages itself.
        assert training.num_reductions == (samples if name == "ae-sam" else 12), name
        assert samples > 0
        assert name == "sam" or samples < 12
        loop = Training(make, sync="rank")
        loop.train_without_closure(rank)
        assert all(map(torch.equal, loop.weights(), training.weights())), name
        other = Training(make)
        other.train(rank)
        assert not all(map(torch.equal, other.weights(), training.weights())), name


def check_psf_is_the_mean_over_the_ranks(rank: int, folder: Path) -> None:
    training = Training(METHODS["vsam"], sync="rank")
    before, inputs = training.weights(), half(rank, 0)
    network = training.network
    own = torch.autograd.grad(loss_of(network, inputs), list(network.parameters()))
    norm = torch.cat([gradient.flatten() for gradient in own]).norm()
    with torch.no_grad():
        for parameter, gradient in zip(network.parameters(), own, strict=True):
            parameter += 0.1 * gradient / norm
    sharp = torch.autograd.grad(loss_of(network, inputs), list(network.parameters()))
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), before, strict=True):
            parameter.copy_(value)
    psf = [a - b for a, b in zip(sharp, own, strict=True)]
    for value in psf:
        torch.distributed.all_reduce(value.div_(2))
    training.train(rank, range(1))
    memory = training.optimizer.state_dict()["sharpness"]["memory"]
    torch.testing.assert_close(list(memory.values()), psf)
    record = training.optimizer.last
    assert record is not None
    assert record.psf_norm == pytest.approx(torch.cat([value.flatten() for value in psf]).norm().item())


def check_one_rank_may_listen(rank: int, folder: Path) -> None:
    for name in ("sam", "vsam", "ae-sam"):
        training = Training(METHODS[name], sync="rank")
        records: list[vsam.StepRecord] = []
        if rank == 0:
            training.optimizer.subscribe(records.append)
        training.train(rank)
        assert_equal_on_all_ranks(training)
        assert [record.step for record in records] == ([] if rank else list(range(1, 13)))


def check_a_rank_that_is_not_finite_makes_all_skip(rank: int, folder: Path) -> None:
    for sync in ("global", "rank"):
        for name in ("sam", "vsam", "ae-sam"):
            training = Training(METHODS[name], sync=sync)
            training.train(rank, range(2))
            before = training.weights()
            inputs = half(rank, 2) * (float("nan") if rank == 1 else 1.0)
            with pytest.warns(RuntimeWarning, match="not finite"):
                training.optimizer.step(lambda: training.backward(inputs))  # noqa: B023
            assert training.optimizer.num_skipped == 1
            assert all(map(torch.equal, training.weights(), before))
            training.train(rank, range(3, 6))
            assert_equal_on_all_ranks(training)


def check_ranks_that_disagree(rank: int, folder: Path) -> None:
    def refused(make: Callable[[], vsam.SharpnessAware], words: str) -> None:
        training = Training(lambda base, **options: make(base, **options))  # type: ignore[call-arg]
        with pytest.raises(RuntimeError, match=f"The ranks do not agree on {words}"):
            training.train(rank, range(1))

    refused(lambda base, **o: vsam.VSAM(base, seed=rank, **o), "when.*seed=0.*seed=1")  # type: ignore[call-arg, misc]
    refused(lambda base, **o: vsam.SAM(base, rho=0.1 + rank, **o), "where")  # type: ignore[call-arg, misc]
    refused(lambda base, **o: (vsam.SAM, vsam.ASAM)[rank](base, **o), "the method")  # type: ignore[call-arg, misc]
    refused(lambda base, **o: vsam.SAM(base, max_grad_norm=1.0 + rank, **o), "max_grad_norm")  # type: ignore[call-arg, misc]
    training = Training(METHODS["vsam"])
    for group in training.optimizer.param_groups:
        group["lr"] = 0.1 + rank
    with pytest.raises(RuntimeError, match="The ranks do not agree on group 0"):
        training.train(rank, range(1))
    training = Training(METHODS["vsam"])
    training.train(rank, range(3))
    state = training.optimizer.state_dict()
    training = Training(METHODS["vsam"])
    if rank == 1:
        training.optimizer.load_state_dict(state)
    with pytest.raises(RuntimeError, match="The ranks do not agree on the steps so far"):
        training.train(rank, range(1))


def check_uneven_batches(rank: int, folder: Path) -> None:
    training = Training(METHODS["sam"])
    with training.ddp.join(), pytest.raises(RuntimeError, match=r"join\(\) is not supported.*drop_last=True"):
        training.train(rank, range(2 + rank))
    training = Training(METHODS["sam"])
    with (
        pytest.raises(RuntimeError, match="exhausted"),
        training.ddp.join(throw_on_early_termination=True),
    ):
        training.train(rank, range(2 + rank))
    assert training.optimizer.num_samples == 2
    assert_equal_on_all_ranks(training)


def check_a_rank_that_raises_in_its_own_pass_tells_the_others(rank: int, folder: Path) -> None:
    for style in ("closure", "loop"):
        training = Training(METHODS["vsam"], sync="rank")
        # In the second step, DDP communicates in the forward pass: it orders its buckets anew.
        training.train(rank, range(2)) if style == "closure" else training.train_without_closure(rank, range(2))
        before, began = training.weights(), time.monotonic()

        def closure() -> Tensor:
            if rank == 1:
                raise KeyError("no such image")
            return training.backward(half(rank, 2))  # noqa: B023

        def loop(training: Training = training) -> None:
            with training.optimizer.no_sync():
                closure()
            training.optimizer.perturb()

        kind, words = (KeyError, "no such image") if rank == 1 else (RuntimeError, "Rank 1 failed in its first pass")
        with pytest.raises(kind, match=words):
            training.optimizer.step(closure) if style == "closure" else loop()
        assert time.monotonic() - began < 60  # told, and not timed out
        training.optimizer.zero_grad()
        assert all(map(torch.equal, training.weights(), before))
        training.train(rank, range(2, 4))
        assert_equal_on_all_ranks(training)


def check_the_page_runs(rank: int, folder: Path) -> None:
    network = nn.Linear(4, 3)
    loader = [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(3)]
    names: dict[str, Any] = {"torch": torch, "network": network, "loader": loader, "criterion": nn.CrossEntropyLoss()}
    names["DistributedDataParallel"] = DistributedDataParallel
    run_page("diff", "DDP", names)
    assert names["optimizer"].num_samples == 1
    run_page("python", "Each rank its own perturbation", names)
    assert names["optimizer"].num_samples == 3
    assert names["optimizer"].sync == "rank"
    os.chdir(folder)
    run_page("python", "Checkpoints", names)


def check_what_cannot_work_is_refused(rank: int, folder: Path) -> None:
    network = nn.Linear(2, 1)
    base = torch.optim.SGD(network.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="pass the DistributedDataParallel module as model="):
        vsam.SAM(base, model=network, sync="rank")
    training = Training(METHODS["sam"], sync="rank")
    training.backward(half(rank, 0))
    with pytest.raises(RuntimeError, match=r"with optimizer\.no_sync"):
        training.optimizer.perturb()


def check_a_rank_that_raises_while_the_others_wait(rank: int, folder: Path) -> None:
    """The last check, since it breaks its process group: the others fail after the group's timeout."""
    group = torch.distributed.new_group(timeout=datetime.timedelta(seconds=5))
    training = Training(METHODS["sam"], group)
    before = training.weights()

    def closure() -> Tensor:
        if rank == 1 and training.optimizer.is_second_pass:
            raise KeyError("no such image")
        return training.backward(half(rank, 0))

    with pytest.raises(KeyError if rank == 1 else RuntimeError):
        training.optimizer.step(closure)
    assert all(map(torch.equal, training.weights(), before))
    (folder / f"over{rank}").touch()
    while not (folder / f"over{1 - rank}").exists():  # stay alive: it is the timeout that is looked at
        time.sleep(0.1)


@pytest.mark.slow
def test_on_two_processes(tmp_path: Path) -> None:
    assert_checks_pass(__file__, tmp_path)


def test_one_process_needs_no_ddp() -> None:
    network = nn.Linear(2, 1)
    weights = []
    for sync in ("global", "rank"):
        model = nn.Linear(2, 1)
        model.load_state_dict(network.state_dict())
        optimizer = vsam.VSAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, sync=sync)
        for _ in range(2):
            with optimizer.no_sync() if sync == "rank" else nullcontext():
                model(torch.ones(3, 2)).sum().backward()
            if optimizer.perturb():
                model(torch.ones(3, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        weights.append(model.weight.detach())
    assert torch.equal(*weights)
    with pytest.raises(ValueError, match="sync must be 'global' or 'rank', got 'ranks'"):
        vsam.SAM(torch.optim.SGD(network.parameters(), lr=0.1), sync="ranks")  # type: ignore[arg-type]
