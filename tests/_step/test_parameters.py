"""A step follows whatever happened to parameters and groups: which ones move, how far, and which are watched."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Optimizer

import vsam
from contract_table import through_a_file


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))


def groups_of(*parts: nn.Module) -> list[dict[str, Any]]:
    return [{"params": list(part.parameters())} for part in parts]


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


class Watching(vsam.Always):
    """Keeps the last ‖g‖ that it was shown."""

    def __init__(self, watch: int | None) -> None:
        self.watch = watch

    def observe(self, psf_norm: Tensor, grad_norm: Tensor) -> None:
        self.shown = float(grad_norm)


def shown(groups: list[dict[str, Any]], model: nn.Module | None, watch: int | None) -> float:
    """‖g‖ over the watched tensors, where the i-th of all tensors has a gradient of length 10ⁱ."""
    tensors = [parameter for group in groups for parameter in group["params"]]
    optimizer = vsam.SharpnessAware(SGD(groups, lr=0.1), model=model, when=Watching(watch))

    def closure() -> None:
        for i, tensor in enumerate(tensors):
            tensor.grad = torch.zeros_like(tensor)
            tensor.grad.view(-1)[0] = 10.0**i

    optimizer.step(closure)
    assert isinstance(optimizer.when, Watching)
    return optimizer.when.shown


def test_the_last_tensors_are_those_of_the_model_whatever_the_groups() -> None:
    model = network()
    groups = [{"params": [model[i].bias, model[i].weight]} for i in (2, 0, 3, 1)]
    assert shown(groups, model, 1) == pytest.approx(10**4)  # 3.bias
    assert shown(groups, model, 3) == pytest.approx(math.hypot(10**0, 10**4, 10**5))  # and 3.weight, 2.bias
    assert (
        shown(groups, model, 99) == shown(groups, model, None) == pytest.approx(math.hypot(*(10**i for i in range(8))))
    )


def test_without_a_model_the_last_tensors_are_those_of_the_groups() -> None:
    model = network()
    assert shown(groups_of(model[2], model[0]), None, 2) == pytest.approx(math.hypot(10**2, 10**3))


def test_parameters_that_are_not_the_models_come_first() -> None:
    model, extra = network(), nn.Parameter(torch.ones(2))
    groups = [*groups_of(model[3]), {"params": [extra]}, *groups_of(model[2])]
    assert shown(groups, model, 4) == pytest.approx(math.hypot(10**0, 10**1, 10**3, 10**4))


def test_complex_gradients_without_a_name_are_refused_by_their_shape() -> None:
    wave = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(RuntimeError, match=r"\(2,\).* complex"):
        vsam.SAM(SGD([wave], lr=0.1)).step(lambda: wave.abs().sum().backward())


@pytest.mark.parametrize("rho", [-0.1, math.nan, math.inf, "0.1", None, True])
def test_a_radius_that_cannot_be_is_refused(rho: Any) -> None:
    one, two = (nn.Parameter(torch.ones(2)) for _ in range(2))
    with pytest.raises(ValueError, match="rho"):
        vsam.SAM(SGD([{"params": [one]}, {"params": [two], "rho": rho}], lr=0.1))
    optimizer = vsam.SAM(SGD([one], lr=0.1))
    with pytest.raises(ValueError, match="rho"):
        optimizer.add_param_group({"params": [two], "rho": rho})
    assert len(optimizer.param_groups) == 1
    optimizer.param_groups[0]["rho"] = rho
    with pytest.raises(ValueError, match="rho"):
        optimizer.step(lambda: one.sum().backward())
    assert one.tolist() == [1, 1]


def offsets(optimizer: vsam.SharpnessAware) -> list[float]:
    """Return the distance that the second pass moves the first number of each group, all with a gradient of 1."""
    groups, seen = optimizer.param_groups, []

    def closure() -> None:
        seen.append([group["params"][0].item() for group in groups])
        for group in groups:
            for tensor in group["params"]:
                tensor.grad = torch.ones_like(tensor)

    optimizer.step(closure)
    return [second - first for first, second in zip(*seen, strict=True)]


def numbers(count: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros((), dtype=torch.float64)) for _ in range(count)]


def test_radii_follow_the_groups_settings() -> None:
    settings: list[dict[str, Any]] = [
        {}, {"rho": 0.3}, {"rho": 0}, {"maximize": True}, {"perturb": False}, {"perturb": True}
    ]  # fmt: skip
    groups = [{"params": [number], **one} for number, one in zip(numbers(6), settings, strict=True)]
    expected = [0.05, 0.3, 0, -0.05, 0, 0.05]  # over ‖g‖ of the five that move
    assert offsets(vsam.SAM(SGD(groups, lr=0.1), rho=0.05)) == pytest.approx([e / 5**0.5 for e in expected])


# A base with a `rho` of its own, which is not the radius


def test_the_rho_of_adadelta_is_not_the_radius() -> None:
    base = Adadelta(numbers(4), lr=0.1)
    optimizer = vsam.SAM(base, rho=0.05)
    assert offsets(optimizer) == pytest.approx([0.05 / 2])
    assert [base.defaults["rho"], base.param_groups[0]["rho"]] == [0.9, 0.9]
    optimizer.add_param_group({"params": numbers(1), "rho": 0.7})
    assert offsets(optimizer) == pytest.approx([0.05 / 5**0.5] * 2)
    assert [group["rho"] for group in base.param_groups] == [0.9, 0.7]


def test_the_rho_of_adadelta_goes_through_a_state_dict() -> None:
    first, second = (vsam.SAM(Adadelta(numbers(4), lr=0.1, rho=rho), rho=0.05) for rho in (0.8, 0.9))
    offsets(first)
    state = through_a_file(first.state_dict())
    second.load_state_dict(state)
    assert second.base.param_groups[0]["rho"] == 0.8
    assert offsets(second) == offsets(first) == pytest.approx([0.05 / 2])


def test_adadelta_beside_another_base_keeps_its_rho() -> None:
    one, two = numbers(2)
    optimizer = vsam.SAM([Adadelta([one], lr=0.1), SGD([{"params": [two], "rho": 0.3}], lr=0.1)], rho=0.05)
    assert offsets(optimizer) == pytest.approx([0.05 / 2**0.5, 0.3 / 2**0.5])
    assert [group["rho"] for group in optimizer.param_groups] == [0.9, 0.3]


def test_a_later_method_with_adadelta_has_its_radius() -> None:
    base = Adadelta(numbers(1), lr=0.1)
    vsam.SAM(base, rho=0.05)
    assert offsets(vsam.SAM(base, rho=0.2)) == pytest.approx([0.2])


def test_adadelta_trains_as_a_sam_written_by_hand() -> None:
    ours, theirs = (nn.Parameter(torch.tensor([3.0, -4.0], dtype=torch.float64)) for _ in range(2))
    optimizer, base = vsam.SAM(Adadelta([ours], lr=0.5), rho=0.05), Adadelta([theirs], lr=0.5)
    for _ in range(5):
        optimizer.step(lambda: ours.pow(4).sum().backward())
        g = 4 * theirs.detach() ** 3
        theirs.grad = 4 * (theirs.detach() + 0.05 * g / g.norm()) ** 3
        base.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


BASES: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    name: getattr(torch.optim, name)
    for name in ("Adadelta", "Adafactor", "Adam", "AdamW", "SGD", "RMSprop", "Muon")
    if hasattr(torch.optim, name)
}


@pytest.mark.parametrize("name", BASES)
def test_wrapping_adds_nothing_to_the_defaults_of_the_base(name: str) -> None:
    base, twin = (BASES[name]([nn.Parameter(torch.ones(3, 3))]) for _ in range(2))
    optimizer = vsam.SAM(base)
    optimizer.step(lambda: base.param_groups[0]["params"][0].square().sum().backward())
    assert optimizer.defaults is base.defaults
    assert base.defaults == twin.defaults
    twin_keys = twin.param_groups[0].keys()
    assert base.param_groups[0].keys() == twin_keys | {"rho"}


def test_some_weights_that_were_cast_are_looked_at_anew() -> None:
    """Neither the first nor the last parameter shows it."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = vsam.VSAM(SGD(model.parameters(), lr=0.1), start=100)

    def closure() -> Tensor:
        hidden = model[0](torch.ones(1, 2))
        loss = model[2](model[1](hidden.to(model[1].weight.dtype)).float()).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    model[1].double()
    optimizer.step(closure)
    memory = optimizer.state_dict()["sharpness"]["memory"]
    assert [memory[i].dtype for i in range(6)] == [parameter.dtype for parameter in model.parameters()]
    assert optimizer.num_skipped == 0


def test_a_second_method_around_the_same_base_has_its_own_radius_and_groups_keep_theirs() -> None:
    one, two = (nn.Parameter(torch.ones(2)) for _ in range(2))
    base = SGD([{"params": [one]}, {"params": [two], "rho": 0.3}], lr=0.1)
    other = SGD([nn.Parameter(torch.ones(2))], lr=0.1)
    vsam.VSAM(base, rho=0.05)
    assert [group["rho"] for group in vsam.SAM(base, rho=0.2).param_groups] == [0.2, 0.3]
    assert [group["rho"] for group in vsam.SAM([base, other], rho=0.1).param_groups] == [0.1, 0.3, 0.1]
