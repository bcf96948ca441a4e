"""The lists of parameters follow the groups however these change, and know who has a gradient and who comes last."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import vsam
from vsam.parameters import Parameters, complete_radii, radii


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))


def groups_of(*parts: nn.Module) -> list[dict[str, Any]]:
    return [{"params": list(part.parameters())} for part in parts]


def give_gradients(parameters: list[Tensor], chosen: set[int]) -> None:
    for i, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, float(i + 1)) if i in chosen else None


def test_all_are_there_in_the_order_of_the_groups() -> None:
    model = network()
    parameters = Parameters(groups_of(model[2], model[0]), model)
    expected = [model[2].weight, model[2].bias, model[0].weight, model[0].bias]
    assert all(map(lambda a, b: a is b, parameters.all.parameters, expected))
    assert parameters.all.groups == [0, 0, 1, 1]
    assert parameters.all.ranks == [4, 5, 0, 1]
    assert parameters.devices == {torch.device("cpu")}


CHANGES: dict[str, Callable[[nn.Sequential, SGD], object]] = {
    "a group added": lambda model, base: base.add_param_group({"params": list(model[3].parameters())}),
    "parameters appended": lambda model, base: base.param_groups[0]["params"].append(model[3].weight),
    "a parameter removed": lambda model, base: base.param_groups[0]["params"].pop(),
    "a parameter replaced": lambda model, base: base.param_groups[0]["params"].__setitem__(1, model[3].weight),
    "the list replaced": lambda model, base: base.param_groups[0].update(params=list(model[3].parameters())),
    "the groups replaced": lambda model, base: setattr(base, "param_groups", groups_of(model[1], model[0])),
    "moved to another group": lambda model, base: base.param_groups[1]["params"].insert(
        0, base.param_groups[0]["params"].pop()
    ),
    "another type": lambda model, base: model.double(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_groups_are_noticed(name: str) -> None:
    model = network()
    base = SGD(groups_of(model[0], model[1]), lr=0.1)
    parameters = Parameters(base.param_groups, model)
    assert parameters.are(base.param_groups)
    CHANGES[name](model, base)
    assert not parameters.are(base.param_groups)
    assert Parameters(base.param_groups, model).are(base.param_groups)


@pytest.mark.parametrize(
    "change",
    [
        lambda base: base.param_groups[0].update(lr=7.0, rho=0.3, perturb=False),
        lambda base: base.load_state_dict(base.state_dict()),
        lambda base: base.param_groups[0].update(params=list(base.param_groups[0]["params"])),
    ],
    ids=["other settings", "loaded", "an equal list"],
)
def test_what_does_not_change_the_parameters_costs_nothing(change: Callable[[SGD], object]) -> None:
    model = network()
    base = SGD(groups_of(model[0], model[1]), lr=0.1)
    parameters = Parameters(base.param_groups, model)
    change(base)
    assert parameters.are(base.param_groups)


@pytest.mark.parametrize("name", CHANGES)
def test_training_follows_the_change(name: str) -> None:
    """Whatever changed between two steps, the next one is that of an optimizer made afterwards."""
    models = [network(), network()]
    bases = [SGD(groups_of(model[0], model[1]), lr=0.1) for model in models]
    optimizers = [vsam.SAM(bases[0], rho=0.5, model=models[0])]
    for optimizer in (*optimizers, vsam.SAM(bases[1], rho=0.5, model=models[1])):
        run(optimizer, optimizer.model)
    for model, base in zip(models, bases, strict=True):
        CHANGES[name](model, base)
        for group in base.param_groups:
            for key, value in base.defaults.items():
                group.setdefault(key, value)
    optimizers.append(vsam.SAM(bases[1], rho=0.5, model=models[1]))
    for optimizer in optimizers:
        for _ in range(2):
            run(optimizer, optimizer.model)
    pairs = list(zip(models[0].parameters(), models[1].parameters(), strict=True))
    assert all(torch.equal(left, right) for left, right in pairs)
    fresh = network().to(models[0][0].weight.dtype)
    assert not torch.equal(models[0][0].weight, fresh[0].weight)


def run(optimizer: vsam.SharpnessAware, model: nn.Module | None) -> None:
    assert model is not None
    inputs = torch.linspace(-1, 1, 12).view(4, 3).to(next(model.parameters()).dtype)

    model.zero_grad()  # also of those that the optimizer did not have so far

    def closure() -> Tensor:
        loss: Tensor = model(inputs).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)


def test_subsets_with_a_gradient_that_change_every_step() -> None:
    model, draws = network(), random.Random(0)
    parameters = Parameters(groups_of(model[0], model[3], model[1]), model)
    everybody = parameters.all.parameters
    for _ in range(50):
        chosen = {i for i in range(6) if draws.random() < 0.6}
        give_gradients(everybody, chosen)
        members = parameters.with_gradient()
        assert [id(p) for p in members.parameters] == [id(everybody[i]) for i in sorted(chosen)]
        assert members.groups == [i // 2 for i in sorted(chosen)]
        assert [float(gradient.flatten()[0]) for gradient in members.gradients()] == [i + 1.0 for i in sorted(chosen)]
        assert members.layout.num_tensors == len(chosen)
        assert members.places.tensors is members.parameters
        assert parameters.with_gradient() is members  # as long as nothing changes, the lists are the same


def test_subsets_that_change_every_step_train_as_if_the_others_were_not_there() -> None:
    ours, theirs, draws = network(), network(), random.Random(1)
    optimizer = vsam.SAM(SGD(ours.parameters(), lr=0.1), rho=0.5)
    for _ in range(20):
        chosen = [i for i in range(4) if draws.random() < 0.6] or [0]
        before = [parameter.detach().clone() for parameter in ours.parameters()]
        once = vsam.SAM(SGD([p for i in chosen for p in theirs[i].parameters()], lr=0.1), rho=0.5)
        for model, own in ((ours, optimizer), (theirs, once)):

            def closure(model: nn.Sequential = model, chosen: list[int] = chosen) -> Tensor:
                loss = sum((model[i](torch.ones(2, 3)) - 1).tanh().square().mean() for i in chosen)
                loss.backward()  # type: ignore[union-attr]
                return loss  # type: ignore[return-value]

            own.step(closure)
        for i, (left, right) in enumerate(zip(ours.parameters(), theirs.parameters(), strict=True)):
            torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-7)
            assert torch.equal(left, before[i]) is (i // 2 not in chosen)


def test_all_with_a_gradient_are_the_list_itself() -> None:
    model = network()
    parameters = Parameters(groups_of(model), model)
    give_gradients(parameters.all.parameters, set(range(8)))
    assert parameters.with_gradient() is parameters.all
    give_gradients(parameters.all.parameters, {0, 2})
    give_gradients(parameters.all.parameters, set())
    assert parameters.with_gradient().parameters == []


def test_the_last_are_the_last_of_the_model_whatever_the_groups() -> None:
    model = network()
    shuffled = [{"params": [model[i].bias, model[i].weight]} for i in (2, 0, 3, 1)]
    members = Parameters(shuffled, model).all
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert [names[id(members.parameters[i])] for i in members.last(3)] == ["2.bias", "3.weight", "3.bias"]
    assert [names[id(members.parameters[i])] for i in members.last(None)] == [n for n, _ in model.named_parameters()]
    assert sorted(members.last(99)) == list(range(8))
    some = members.only([0, 1, 2, 6])  # the bias and the weight of 2, the bias of 0, that of 1
    assert [names[id(some.parameters[i])] for i in some.last(2)] == ["2.weight", "2.bias"]


def test_without_a_model_the_last_are_those_of_the_groups() -> None:
    model = network()
    members = Parameters(groups_of(model[2], model[0]), None).all
    assert members.last(2) == [2, 3]
    assert members.last(None) == [0, 1, 2, 3]


def test_parameters_that_are_not_the_models_come_first() -> None:
    model, extra = network(), nn.Parameter(torch.ones(2))
    members = Parameters([*groups_of(model), {"params": [extra]}], model).all
    assert members.ranks[-1] == -1
    assert members.last(None)[0] == 8
    assert 8 not in members.last(8)


def test_frozen_parameters_lose_what_gradient_they_had() -> None:
    model = network()
    parameters = Parameters(groups_of(model), model)
    give_gradients(parameters.all.parameters, set(range(8)))
    model[1].requires_grad_(False)
    parameters.clear_frozen()
    assert model[1].weight.grad is None
    assert model[1].bias.grad is None
    assert len(parameters.with_gradient().parameters) == 6


def test_gradients_that_cannot_be_used_are_refused_by_name() -> None:
    model = nn.ModuleDict({"plain": nn.Linear(2, 2), "table": nn.Embedding(5, 2, sparse=True)})
    model["table"](torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match=r"^table\.weight has a sparse gradient.*sparse=False\.$"):
        Parameters(groups_of(model), model).with_gradient()
    with pytest.raises(RuntimeError, match=r"^A parameter of shape \(5, 2\) has a sparse gradient"):
        Parameters(groups_of(model), None).with_gradient()
    wave = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    wave.abs().sum().backward()
    with pytest.raises(RuntimeError, match=r"^A parameter of shape \(2,\) is complex"):
        Parameters([{"params": [wave]}], None).with_gradient()


def test_groups_that_name_no_radius_get_the_methods() -> None:
    groups: list[dict[str, Any]] = [{"params": []}, {"params": [], "rho": 0.3}, {"params": [], "rho": 0}]
    complete_radii(groups, 0.05)
    assert [group["rho"] for group in groups] == [0.05, 0.3, 0]


@pytest.mark.parametrize("rho", [-0.1, math.nan, math.inf, "0.1", None, True])
def test_a_radius_that_cannot_be_is_refused(rho: Any) -> None:
    with pytest.raises(ValueError, match=r"^rho must "):
        complete_radii([{"params": [], "rho": rho}], 0.05)


def test_radii_follow_the_groups_settings() -> None:
    settings: list[dict[str, Any]] = [{}, {"rho": 0.3}, {"maximize": True}, {"perturb": False}, {"perturb": True}]
    assert radii([{"params": [], **own} for own in settings], 0.05) == [0.05, 0.3, -0.05, None, 0.05]


def test_some_weights_that_were_cast_are_looked_at_anew() -> None:
    """Neither the first nor the last parameter shows it."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = vsam.VSAM(torch.optim.SGD(model.parameters(), lr=0.1), start=100)

    def closure() -> Tensor:
        hidden = model[0](torch.ones(1, 2))
        loss = model[2](model[1](hidden.to(model[1].weight.dtype)).float()).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    model[1].double()
    optimizer.step(closure)
    assert optimizer._parameters.all.layout.dtypes[2:4] == [torch.float64] * 2
    assert optimizer.num_skipped == 0


def test_a_second_method_around_the_same_base_has_its_own_radius_and_groups_keep_theirs() -> None:
    one, two = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    base = torch.optim.SGD([{"params": [one]}, {"params": [two], "rho": 0.3}], lr=0.1)
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    vsam.VSAM(base, rho=0.05)
    assert [group["rho"] for group in vsam.SAM(base, rho=0.2).param_groups] == [0.2, 0.3]
    assert [group["rho"] for group in vsam.SAM([base, other], rho=0.1).param_groups] == [0.1, 0.3, 0.1]
