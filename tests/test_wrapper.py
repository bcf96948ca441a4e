"""The optimizer looks like its base: what is assigned to it reaches the base, and a step on nothing runs its hooks."""

import copy
import pickle
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW

import vsam
from contract_table import (
    LENGTH,
    Run,
    argument,
    assert_same,
    every_looping_method,
    every_method,
    losses_of,
)
from vsam._step import foreach

# Assigning state, groups and defaults


@every_method
def test_a_state_that_is_assigned_is_that_of_the_base(method: str) -> None:
    """The usual way to start a base anew: both then go on as one whose state was emptied through the base."""
    runs = []
    for through_base in (False, True):
        runs.append(Run(method, "adamw").go(last=6))
        optimizer = runs[-1].optimizer
        empty: Any = defaultdict(dict)
        (optimizer.base if through_base else optimizer).state = empty
        assert optimizer.state is optimizer.base.state is empty
        runs[-1].go(first=6)
        assert {float(state["step"]) for state in empty.values()} == {LENGTH - 6}
    assert_same(runs[0].everything(), runs[1].everything())


@every_looping_method
@pytest.mark.parametrize("style", ["step", "step_without_closure"])
def test_groups_that_are_assigned_are_trained_from_the_next_step_on(method: str, style: str) -> None:
    run = Run(method, "momentum").go(last=3)
    optimizer, last = run.optimizer, run.model[5]
    groups = [{**optimizer.param_groups[0], "params": list(last.parameters()), "lr": 0.3}]
    optimizer.param_groups = groups
    assert optimizer.param_groups is optimizer.base.param_groups is groups
    frozen, moved = run.model[1].weight.detach().clone(), last.weight.detach().clone()
    for number in range(3, 9):
        getattr(run, style)(number)
    assert_same(run.model[1].weight.detach(), frozen)
    assert not torch.equal(last.weight, moved)


def test_gradients_left_over_in_assigned_groups_do_not_count_as_accumulated() -> None:
    run = Run("sam")
    optimizer, late = run.optimizer, nn.Parameter(torch.ones(2))
    run.step(0)
    late.grad = torch.ones(2)  # from earlier passes, in which the optimizer did not have it
    optimizer.param_groups = [*optimizer.param_groups, {**optimizer.param_groups[0], "params": [late]}]
    run.step(1)
    assert late.tolist() == [1.0, 1.0]


def test_groups_that_are_assigned_without_a_radius_get_the_methods() -> None:
    run = Run("sam", rho=0.5)
    run.optimizer.param_groups = [{"params": list(run.model.parameters()), **run.optimizer.defaults}]
    seen: list[list[Tensor]] = []
    run.optimizer.step(run.closure(0, before=lambda: seen.append(run.weights())))
    moved = sum(float((b - a).square().sum()) for a, b in zip(*seen, strict=True)) ** 0.5
    assert moved == pytest.approx(0.5, rel=1e-4)


def test_defaults_that_are_assigned_are_those_of_new_groups() -> None:
    optimizer, late = vsam.SAM(SGD([nn.Parameter(torch.ones(2))], lr=0.1)), nn.Parameter(torch.ones(2))
    optimizer.defaults = {**optimizer.defaults, "lr": 0.7}
    assert optimizer.base.defaults["lr"] == 0.7
    optimizer.add_param_group({"params": [late]})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.7]


def test_what_is_assigned_to_a_list_of_bases_reaches_each_of_them() -> None:
    run = Run("sam", _two).go(last=3)
    one, two = run.optimizer.base.bases
    run.optimizer.state = defaultdict(dict)
    assert not one.state
    assert not two.state
    run.optimizer.param_groups = [{**group, "lr": group["lr"] / 2} for group in run.optimizer.param_groups]
    assert [base.param_groups[0]["lr"] for base in (one, two)] == [0.1, 0.005]
    run.optimizer.defaults = {**run.optimizer.defaults, "lr": 7.0}
    assert one.defaults["lr"] == 7.0
    run.go(first=3)
    assert [len(base.state) for base in (one, two)] == [3, 3]
    with pytest.raises(ValueError, match="param_groups"):
        run.optimizer.param_groups = run.optimizer.param_groups[:1]
    assert [len(base.param_groups) for base in (one, two)] == [1, 1]


def _two(parameters: Any) -> Any:
    listed = list(parameters)
    return [SGD(listed[:3], lr=0.2, momentum=0.9), AdamW(listed[3:], lr=0.01)]


@pytest.mark.parametrize("name", ["state", "param_groups", "defaults"])
def test_what_was_assigned_is_copied_and_pickled(name: str) -> None:
    optimizer = vsam.SAM(SGD([nn.Parameter(torch.ones(2))], lr=0.1))
    setattr(optimizer, name, copy.copy(getattr(optimizer, name)))
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert getattr(twin, name) is getattr(twin.base, name)
        assert getattr(twin, name) is not getattr(optimizer, name)


# A step on nothing


def _hooked(base: torch.optim.Optimizer, calls: list[str]) -> None:
    base.register_step_pre_hook(lambda *_: calls.append("before"))
    base.register_step_post_hook(lambda *_: calls.append("after"))


@every_method
def test_a_step_without_any_gradient_runs_the_hooks_of_the_base(method: str) -> None:
    run, calls = Run(method, "adamw"), []
    _hooked(run.optimizer.base, calls)
    run.model.requires_grad_(False)
    before = run.everything()

    def losses(keep: Tensor | None = None) -> Tensor:
        return losses_of(run.model, 0, keep).detach().requires_grad_()

    with pytest.warns(RuntimeWarning, match="No parameter has a gradient"):
        run.optimizer.step(argument(method, losses))
    assert calls == ["before", "after"]
    assert run.optimizer.last is None
    assert_same(run.everything()["optimizer"], before["optimizer"])
    assert not run.optimizer.state


@every_looping_method
def test_a_loop_without_any_gradient_runs_the_hooks_of_the_base(method: str) -> None:
    run, calls = Run(method, "adamw"), []
    _hooked(run.optimizer.base, calls)
    for number in range(2):
        if number:
            assert not run.optimizer.perturb()
        else:
            with pytest.warns(RuntimeWarning, match="No parameter has a gradient"):
                assert not run.optimizer.perturb()
        assert calls == ["before", "after"] * number
        run.optimizer.step()
    assert calls == ["before", "after"] * 2


@pytest.mark.parametrize("with_closure", [True, False])
def test_a_step_without_any_gradient_gives_its_draw_back(with_closure: bool) -> None:
    optimizer = vsam.SharpnessAware(SGD([nn.Parameter(torch.ones(2))], lr=0.1), when=vsam.Bernoulli(0.5))
    before = optimizer.when.state_dict()
    with pytest.warns(RuntimeWarning, match="No parameter has a gradient"):
        _ = optimizer.step(lambda: None) if with_closure else (optimizer.perturb(), optimizer.step())
    assert optimizer.when.state_dict() == before


def test_a_hook_may_fill_in_the_gradients_of_a_step_without_any() -> None:
    """As some wrappers of packages do: torch steps with them, and so do we."""
    weight = nn.Parameter(torch.ones(2))
    base = SGD([weight], lr=0.5)
    base.register_step_pre_hook(lambda *_: setattr(weight, "grad", torch.ones(2)))
    optimizer = vsam.SAM(base)
    with pytest.warns(RuntimeWarning, match="No parameter has a gradient"):
        optimizer.step(lambda: None)
    assert weight.tolist() == [0.5, 0.5]


# Hooks of the base that use the optimizer


@pytest.mark.parametrize("use", ["zero_grad", "state_dict"])
def test_a_hook_of_the_base_may_clear_gradients_and_save(use: str) -> None:
    run = Run("sam-5", "momentum")
    run.optimizer.base.register_step_post_hook(lambda *_: getattr(run.optimizer, use)())
    run.go(last=6)
    assert run.optimizer.num_samples == 2
    assert run.optimizer.cost == pytest.approx(1 + 2 / 6)
    assert int(run.model[2].num_batches_tracked) == 6


@pytest.mark.parametrize("has_closure", [True, False])
def test_a_gradient_set_by_hand_stays_from_step_to_step(has_closure: bool) -> None:
    """As with torch, where nobody clears it."""
    run, fixed = Run("sam"), torch.ones(3)
    fixed.grad = torch.ones(3)
    run.optimizer = vsam.SAM(SGD([*run.model.parameters(), fixed], lr=0.1), model=run.model)
    for number in range(3):
        if has_closure:
            run.step(number)
        else:
            run.loss(number).backward()
            if run.optimizer.perturb():
                run.loss(number).backward()
            run.optimizer.step()
            run.model.zero_grad()
    torch.testing.assert_close(fixed, torch.full((3,), 0.7))
    assert fixed.grad is not None


def test_a_state_that_was_reset_is_not_left_to_a_fused_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose kernel would skip a step without having made the new state."""
    monkeypatch.setattr(foreach, "HOST", "nowhere")
    run = Run("sam", lambda parameters: SGD(parameters, lr=0.05, momentum=0.9, fused=True)).go(last=3)
    run.optimizer.state = defaultdict(dict)
    handle = run.model[1].weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.warns(RuntimeWarning, match="not finite"):
        run.step(3)
    handle.remove()
    run.go(4, 6)
    assert all(bool(weight.isfinite().all()) for weight in run.weights())
    assert max(float(weight.abs().max()) for weight in run.weights()) < 100


def test_a_subscription_ends_after_a_load_and_a_failed_step() -> None:
    run, heard = Run("sam"), []
    end = run.optimizer.subscribe(heard.append)
    run.optimizer.load_state_dict(run.optimizer.state_dict())

    def fail(*_: object) -> None:
        raise KeyError

    handle = run.optimizer.base.register_step_pre_hook(fail)
    with pytest.raises(KeyError):
        run.step(0)
    handle.remove()
    end()
    run.step(0)
    assert not heard


def test_settings_that_cannot_be_are_refused() -> None:
    class Demanding(SGD):
        def step(self, function: object) -> None:  # type: ignore[override]
            raise AssertionError

    with pytest.raises(ValueError, match="closure"):
        vsam.SAM(Demanding([nn.Parameter(torch.ones(2))], lr=0.1))
    with pytest.raises(ValueError, match="guard"):
        Run("sam", guard=None)


# What a second pass must leave alone besides buffers


@pytest.mark.parametrize("style", ["step", "step_without_closure"])
def test_what_is_hidden_from_the_second_pass_is_restored_after_it(style: str) -> None:
    run, values, saved = Run("sam", rho=0.5), [0], []

    def save() -> Any:
        saved.append(list(values))
        return lambda: values.__setitem__(slice(None), saved[-1])

    run.optimizer.hide_second_pass(save)
    run.model.register_forward_hook(lambda *_: values.append(len(values)))
    for number in range(3):
        getattr(run, style)(number)
        for group in run.optimizer.param_groups:  # has the optimizer list its parameters anew
            group["params"] = list(group["params"])
    assert values == [0, 1, 2, 3]
    assert saved == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]
