"""`StatefulOptimizer` in `torch.distributed.checkpoint`: everything is there, on as many processes as one likes."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

import vsam
from contract_table import assert_same
from processes import assert_checks_pass

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")


class Training:
    """vSAM on AdamW for the matrices and SGD for the rest, on one process or sharded over all."""

    def __init__(self, wrapper: str = "none") -> None:
        torch.manual_seed(0)
        self.model: Any = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1)).double()
        if wrapper == "fsdp":
            fully_shard(self.model)
        elif wrapper == "ddp":
            self.model = DistributedDataParallel(self.model)
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        rest = [p for p in self.model.parameters() if p.ndim == 1]
        bases = [torch.optim.AdamW(matrices, lr=0.01), torch.optim.SGD(rest, lr=0.05, momentum=0.9)]
        self.optimizer = vsam.VSAM(
            bases, model=self.model, rho=0.1, start=4, window=6, slices=3, alpha=0.5, initial_samples=2
        )

    def train(self, rows: slice, steps: range) -> "Training":
        for number in steps:
            inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(number)).double()[rows]

            def closure(inputs: Tensor = inputs) -> Tensor:
                loss = (self.model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
                loss.backward()
                return loss

            self.optimizer.step(closure)
        return self

    def _state(self) -> dict[str, Any]:
        optimizer = vsam.distributed.StatefulOptimizer(self.model, self.optimizer)
        return {"model": get_model_state_dict(self.model), "optimizer": optimizer}

    def save(self, folder: Path) -> None:
        dcp.save(self._state(), checkpoint_id=folder)

    def load(self, folder: Path) -> "Training":
        state = self._state()
        dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(self.model, state["model"])
        return self

    def everything(self) -> list[Any]:
        """Weights, the bases' state and our entry, with shards put together."""
        state = self.optimizer.state_dict()
        return [*map(_full, ([p.detach() for p in self.model.parameters()], state["state"], state["sharpness"]))]


def _full(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {name: _full(value) for name, value in thing.items()}
    if isinstance(thing, list):
        return [_full(value) for value in thing]
    return thing.full_tensor() if hasattr(thing, "full_tensor") else thing


def check_the_same_layout_continues_bit_for_bit(rank: int, folder: Path) -> None:
    rows = slice(4 * rank, 4 * rank + 4)
    for wrapper in ("fsdp", "ddp"):
        training = Training(wrapper).train(rows, range(9))
        training.save(folder / f"two-{wrapper}")
        loaded = Training(wrapper).load(folder / f"two-{wrapper}")
        assert_same(loaded.everything(), training.everything())
        assert_same(loaded.train(rows, range(9, 20)).everything(), training.train(rows, range(9, 20)).everything())


def check_a_checkpoint_of_one_process(rank: int, folder: Path) -> None:
    expected = torch.load(folder / "one.pt", weights_only=True)
    for wrapper in ("fsdp", "ddp"):
        training = Training(wrapper).load(folder / "one")
        everything = training.everything()
        assert_same(everything, expected)
        memory = training.optimizer.state_dict()["sharpness"]["memory"]
        assert (wrapper == "fsdp") is all(hasattr(value, "placements") for value in memory.values())
        training.train(slice(4 * rank, 4 * rank + 4), range(9, 12))
        assert training.optimizer.last.step == 12  # type: ignore[union-attr]


def check_what_is_expected_of_one_process(rank: int, folder: Path) -> None:
    rows = slice(4 * rank, 4 * rank + 4)
    everything = Training("fsdp").train(rows, range(9)).everything()
    if rank == 0:
        torch.save(everything, folder / "two.pt")


def check_a_whole_state_is_not_taken_for_a_shard(rank: int, folder: Path) -> None:
    state = Training("ddp").train(slice(4 * rank, 4 * rank + 4), range(3)).optimizer.state_dict()
    with pytest.raises(ValueError, match=r"not sharded like the parameter.*StatefulOptimizer"):
        Training("fsdp").optimizer.load_state_dict(state)


@pytest.mark.slow
def test_two_processes_to_one_and_back(tmp_path: Path) -> None:
    one = Training().train(slice(None), range(9))
    one.save(tmp_path / "one")
    torch.save(one.everything(), tmp_path / "one.pt")
    assert_checks_pass(__file__, tmp_path)
    loaded = Training().load(tmp_path / "two-fsdp")
    assert_same(loaded.everything(), torch.load(tmp_path / "two.pt", weights_only=True))
    loaded.train(slice(None), range(9, 12))


@pytest.mark.parametrize("num_steps", [0, 3, 9])
def test_one_process_continues_bit_for_bit(tmp_path: Path, num_steps: int) -> None:
    training = Training().train(slice(None), range(num_steps))
    before = copy.deepcopy(training.everything())
    training.save(tmp_path)
    assert_same(training.everything(), before)  # saving changes nothing, also before the first step
    loaded = Training().load(tmp_path)
    assert_same(loaded.everything(), before)
    loaded.train(slice(None), range(num_steps, 15))
    assert_same(loaded.everything(), training.train(slice(None), range(num_steps, 15)).everything())


def test_a_state_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    state = vsam.distributed.StatefulOptimizer(*_parts(Training().train(slice(None), range(5)))).state_dict()
    training = Training().train(slice(None), range(2))
    before = copy.deepcopy(training.everything())
    state["memory"] = {name: value * float("nan") for name, value in state["memory"].items()}
    with pytest.raises(ValueError, match="not hold finite floating-point numbers"):
        vsam.distributed.StatefulOptimizer(*_parts(training)).load_state_dict(state)
    assert_same(training.everything(), before)


def _parts(training: Training) -> tuple[nn.Module, vsam.SharpnessAware]:
    return training.model, training.optimizer


@pytest.mark.parametrize("num_steps", [0, 2])
@pytest.mark.parametrize("has_gradient", [False, True])
@pytest.mark.parametrize("method", [vsam.VSAM, vsam.ESAM])
@pytest.mark.parametrize("full", [False, True])
def test_torchs_own_functions_are_refused_and_change_nothing(
    num_steps: int, has_gradient: bool, method: Any, full: bool
) -> None:
    model, twin = nn.Linear(2, 1), nn.Linear(2, 1)
    base, other = (AdamW([{"params": [m.weight]}, {"params": [m.bias], "lr": 0.3}], lr=0.1) for m in (model, twin))
    optimizer = method(base, model=model)

    def loss(keep: Any = None) -> Tensor:
        return model(torch.ones(3, 2)[slice(None) if keep is None else keep]).mean(1)

    for _ in range(num_steps):
        optimizer.step(loss if method is vsam.ESAM else lambda: loss().sum().backward())
    optimizer.zero_grad()
    if has_gradient:
        loss().sum().backward()
    options = StateDictOptions(full_state_dict=full)
    saved = get_optimizer_state_dict(twin, other)
    before = copy.deepcopy([optimizer.state_dict(), [(p, p.grad) for p in model.parameters()]])
    for call in (
        lambda: get_optimizer_state_dict(model, optimizer, options=options),
        lambda: get_state_dict(model, [optimizer], options=options),
        lambda: set_optimizer_state_dict(
            model, optimizer, optim_state_dict={"state": {}, "param_groups": []}, options=options
        ),
        lambda: set_optimizer_state_dict(model, optimizer, optim_state_dict=saved, options=options),
    ):
        with pytest.raises(RuntimeError, match="StatefulOptimizer"):
            call()
        after = [optimizer.state_dict(), [(p, p.grad) for p in model.parameters()]]
        assert repr(after) == repr(before)
    get_optimizer_state_dict(model, optimizer.base)


def test_a_wrapper_in_between_is_seen_through() -> None:
    model = nn.Linear(2, 1)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model=model)

    class Other(torch.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__(model.parameters(), {"lr": 0.1})
            self.state[model.weight] = {"momentum_buffer": torch.zeros(1, 2)}

        def state_dict(self) -> dict[str, Any]:
            return optimizer.state_dict()

    with pytest.raises(RuntimeError, match="StatefulOptimizer"):
        get_optimizer_state_dict(model, Other())


def test_what_it_takes() -> None:
    model = nn.Linear(2, 1)
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="optimizer must be one of vsam's, got SGD"):
        vsam.distributed.StatefulOptimizer(model, base)
    with pytest.raises(ValueError, match=r"model must be a torch\.nn\.Module, got list"):
        vsam.distributed.StatefulOptimizer([], vsam.SAM(base))  # type: ignore[arg-type]
