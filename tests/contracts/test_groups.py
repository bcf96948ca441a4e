"""Several parameter groups: their radius, `perturb=False`, late groups, schedulers and hooks."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import (
    BASES,
    LENGTH,
    METHODS,
    Run,
    assert_same,
    every_method,
    every_method_that,
    every_style,
    network,
)
from vsam._step.parameters import Parameters


def _grouped(method: str, *options: dict[str, Any]) -> Run:
    """A run whose network is cut into the layers before and after dropout, each a group with options."""
    run = Run(method)
    first, second = [*run.model[1].parameters(), *run.model[2].parameters()], [*run.model[5].parameters()]
    groups = [{"params": params, **extra} for params, extra in zip((first, second), options, strict=True)]
    base = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    run.optimizer = METHODS[method](base, model=run.model)
    return run


def _offsets(run: Run, number: int = 0) -> list[Tensor]:
    """Return the distance between the two passes, for each parameter."""
    seen: list[list[Tensor]] = []
    run.optimizer.step(run.closure(number, before=lambda: seen.append(run.weights())))
    return [after - before for before, after in zip(seen[0], seen[-1], strict=True)]


def _length(tensors: list[Tensor]) -> float:
    return sum(float(t.square().sum()) for t in tensors) ** 0.5


def test_each_group_has_its_own_radius_and_the_norm_is_over_all() -> None:
    both, mixed = (
        _offsets(_grouped("sam", {"rho": 0.1}, {"rho": 0.1})),
        _offsets(_grouped("sam", {"rho": 0.1}, {"rho": 0.4})),
    )
    assert _length(both) == pytest.approx(0.1, rel=1e-4)
    torch.testing.assert_close(mixed[:4], both[:4], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(mixed[4:], [4 * t for t in both[4:]], rtol=1e-3, atol=1e-6)


@every_method_that("samples its first step")
def test_a_group_may_be_left_out(method: str) -> None:
    run = _grouped(method, {"perturb": False}, {"rho": 0.1})
    offsets = _offsets(run)
    assert _length(offsets[:4]) == 0
    radius = {"asam": None, "esam": 0.1 / 0.6}.get(method, 0.1)
    assert radius is None or _length(offsets[4:]) == pytest.approx(radius, rel=1e-4)
    assert _length(offsets[4:]) > 0
    run.go(first=1)
    assert run.optimizer.num_skipped == 0


@every_method
def test_all_groups_may_be_left_out(method: str) -> None:
    run = _grouped(method, {"perturb": False}, {"perturb": False})
    assert _length(_offsets(run)) == 0
    run.go(first=1)


def test_one_method_setting_reaches_all_groups() -> None:
    run = _grouped("sam", {}, {"rho": 0.3})
    assert [group["rho"] for group in run.optimizer.param_groups] == [0.05, 0.3]
    assert run.optimizer.param_groups is run.optimizer.base.param_groups
    assert run.optimizer.state is run.optimizer.base.state
    assert run.optimizer.defaults is run.optimizer.base.defaults


def test_the_radius_may_change_while_training() -> None:
    run = Run("sam")
    for number, rho in enumerate([0.05, 0.5, 0.0, 0.2]):
        run.optimizer.param_groups[0]["rho"] = rho
        assert _length(_offsets(run, number)) == pytest.approx(rho, rel=1e-4)
    run.optimizer.param_groups[0]["rho"] = -1.0
    with pytest.raises(ValueError, match="rho must not be negative"):
        run.step(4)


@every_method
@pytest.mark.parametrize("through", ["optimizer", "base"])
def test_groups_may_come_later(method: str, through: str) -> None:
    run, late = Run(method, "momentum"), nn.Linear(3, 3)
    run.go(last=3)
    target = run.optimizer if through == "optimizer" else run.optimizer.base
    target.add_param_group({"params": list(late.parameters()), "lr": 0.01})
    run.model.append(late)
    before = late.weight.detach().clone()
    run.go(first=3)
    assert not torch.equal(late.weight, before)
    assert run.optimizer.param_groups[1]["rho"] == run.optimizer.param_groups[0]["rho"]
    assert run.optimizer.num_skipped == 0
    saved = run.optimizer.state_dict()
    run.optimizer.load_state_dict(saved)


@pytest.mark.parametrize("through", ["optimizer", "base"])
def test_a_late_group_may_name_its_radius(through: str) -> None:
    run, late = Run("sam"), nn.Linear(3, 3)
    target = run.optimizer if through == "optimizer" else run.optimizer.base
    target.add_param_group({"params": list(late.parameters()), "rho": 0.0})
    run.model.append(late)
    assert _length(_offsets(run)[6:]) == 0


SCHEDULERS = {
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, LENGTH),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=LENGTH + 1),
    "plateau": lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1),
    "sequence": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, LENGTH),
        ],
        [5],
    ),
}


@pytest.mark.filterwarnings("ignore:The epoch parameter in:UserWarning")  # SequentialLR of torch 2.6
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("style", ["step", "step_without_closure"])
def test_schedulers(name: str, style: str) -> None:
    """Built on ours, they set what the base reads, exactly as when built on the base alone."""
    run = Run("vsam", "momentum")
    scheduler = SCHEDULERS[name](run.optimizer)
    alone = BASES["momentum"](network().parameters())
    twin = SCHEDULERS[name](alone)
    for number in range(LENGTH):
        getattr(run, style)(number)
        alone.step()
        for each in (scheduler, twin):
            each.step(1.0) if name == "plateau" else each.step()
        assert run.optimizer.base.param_groups[0]["lr"] == alone.param_groups[0]["lr"]
        assert run.optimizer.base.param_groups[0]["momentum"] == alone.param_groups[0]["momentum"]
    assert alone.param_groups[0]["lr"] != 0.05


@every_style
def test_step_hooks_run_once_a_step(method: str, style: str) -> None:
    run, calls = Run(method), []
    run.optimizer.register_step_pre_hook(lambda *_: calls.append("ours before"))
    run.optimizer.base.register_step_pre_hook(lambda *_: calls.append("base before"))
    run.optimizer.base.register_step_post_hook(lambda *_: calls.append("base after"))
    run.optimizer.register_step_post_hook(lambda *_: calls.append("ours after"))
    for number in range(3):
        getattr(run, style)(number)
    assert calls == ["ours before", "base before", "base after", "ours after"] * 3


def test_a_base_hook_may_clip_what_the_base_gets() -> None:
    run = Run("sam", "sgd")

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(run.model.parameters(), 1e-3)

    run.optimizer.base.register_step_pre_hook(clip)
    before = run.weights()
    run.step(0)
    moved = _length([a - b for a, b in zip(run.weights(), before, strict=True)])
    assert moved == pytest.approx(0.1 * 1e-3, rel=1e-3)


def test_watching_follows_the_order_of_the_model() -> None:
    """The last tensors are the model's last, in any order of groups. Without a model they are the groups' last."""
    model = network()
    groups = [{"params": list(model[5].parameters())}, {"params": [*model[1].parameters(), *model[2].parameters()]}]
    base = torch.optim.SGD(groups, lr=0.1)
    with_model, without = vsam.VSAM(base, model=model, watch=2), vsam.VSAM(base, watch=2)
    for optimizer, watched in ((with_model, model[5]), (without, model[2])):
        members = Parameters([base], optimizer.model).all
        chosen = {id(members.parameters[i]) for i in members.last(optimizer.when.watch)}
        assert chosen == {id(parameter) for parameter in watched.parameters()}


def test_hooks_and_groups_survive_together() -> None:
    run = Run("vsam", "adamw")
    scheduler = SCHEDULERS["cosine"](run.optimizer)
    for number in range(5):
        run.step(number)
        scheduler.step()
    saved = run.optimizer.state_dict()
    assert_same(saved["param_groups"][0]["lr"], run.optimizer.base.param_groups[0]["lr"])
    assert saved["param_groups"][0]["rho"] == 0.05
