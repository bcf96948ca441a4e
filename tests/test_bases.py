"""A list of base optimizers: one perturbation over all parameters, and each base steps on its own."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import vsam
from contract_table import through_a_file
from vsam.bases import Joined, bases_of, keep_bases

Make = Callable[[nn.Sequential], list[Optimizer]]
LISTS: dict[str, Make] = {
    "SGD and AdamW": lambda model: [
        SGD(model[0].parameters(), lr=0.1, momentum=0.9),
        AdamW(model[2].parameters(), lr=0.01, weight_decay=0.1),
    ],
    "three, one with two groups": lambda model: [
        AdamW([model[0].bias], lr=0.02, amsgrad=True),
        SGD([{"params": [model[0].weight], "lr": 0.3}, {"params": [model[2].bias]}], lr=0.1, momentum=0.5),
        torch.optim.RMSprop([model[2].weight], lr=0.01),
    ],
}
if hasattr(torch.optim, "Muon"):
    LISTS["Muon and AdamW"] = lambda model: [
        torch.optim.Muon([model[0].weight, model[2].weight], lr=0.02),
        AdamW([model[0].bias, model[2].bias], lr=0.01),
    ]


@pytest.fixture(params=LISTS)
def make(request: pytest.FixtureRequest) -> Make:
    return LISTS[request.param]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()


INPUTS = torch.randn(20, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def loss_of(model: nn.Module, step: int) -> Tensor:
    loss: Tensor = (model(INPUTS[step % 20]) - 1).square().mean()
    return loss


def train(optimizer: vsam.SharpnessAware, model: nn.Module, steps: range) -> None:
    for step in steps:

        def closure(step: int = step) -> Tensor:
            loss = loss_of(model, step)
            loss.backward()
            return loss

        optimizer.step(closure)


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def are_equal(left: Any, right: Any) -> bool:
    """Equality to the bit that looks into tensors."""
    if isinstance(left, Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(are_equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(are_equal, left, right))
    return bool(left == right)


def sam_by_hand(model: nn.Sequential, bases: list[Optimizer], rho: float, steps: range) -> None:
    parameters = list(model.parameters())
    for step in steps:
        gradients = torch.autograd.grad(loss_of(model, step), parameters)
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        before = weights(model)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.add_(rho * gradient / (norm + 1e-12))
        sharp = torch.autograd.grad(loss_of(model, step), parameters)
        with torch.no_grad():
            for parameter, value, gradient in zip(parameters, before, sharp, strict=True):
                parameter.copy_(value)
                parameter.grad = gradient
        for base in bases:
            base.step()


def test_it_equals_sam_by_hand(make: Make) -> None:
    ours, theirs = network(), network()
    optimizer = vsam.SAM(make(ours), rho=0.3, model=ours)
    train(optimizer, ours, range(10))
    sam_by_hand(theirs, make(theirs), 0.3, range(10))
    for left, right in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)
    assert optimizer.num_samples == 10


def test_a_radius_of_zero_is_the_bases_alone_to_the_bit(make: Make) -> None:
    ours, theirs = network(), network()
    train(vsam.SAM(make(ours), rho=0.0, model=ours), ours, range(10))
    bases = make(theirs)
    for step in range(10):
        theirs.zero_grad()
        loss_of(theirs, step).backward()
        for base in bases:
            base.step()
    assert are_equal(weights(ours), weights(theirs))


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_one_is_that_one(kind: type) -> None:
    model = network()
    base = SGD(model.parameters(), lr=0.1)
    assert vsam.SAM(kind([base])).base is base
    assert bases_of(base) == [base]


def test_two_steps_without_a_closure_equal_two_with_one(make: Make) -> None:
    ours, theirs = network(), network()
    train(vsam.VSAM(make(ours), model=ours, start=2), ours, range(12))
    optimizer = vsam.VSAM(make(theirs), model=theirs, start=2)
    for step in range(12):
        optimizer.zero_grad()
        loss_of(theirs, step).backward()
        if optimizer.perturb():
            loss_of(theirs, step).backward()
        optimizer.step()
    assert are_equal(weights(ours), weights(theirs))


def test_groups_and_state_are_those_of_the_bases(make: Make) -> None:
    model = network()
    bases = make(model)
    optimizer = vsam.SAM(bases, model=model)
    expected = [group for base in bases for group in base.param_groups]
    assert all(map(lambda a, b: a is b, optimizer.param_groups, expected))
    assert len(optimizer.param_groups) == len(expected)
    train(optimizer, model, range(2))
    for base in bases:
        for parameter, state in base.state.items():
            assert optimizer.state[parameter] is state
            assert parameter in optimizer.state
    assert len(optimizer.state) == sum(len(base.state) for base in bases) == 4


def test_looking_at_the_state_makes_no_entries(make: Make) -> None:
    model = network()
    bases = make(model)
    optimizer = vsam.SAM(bases, model=model)
    train(optimizer, model, range(1))
    sizes = [len(base.state) for base in bases]
    for parameter in model.parameters():
        assert optimizer.state[parameter]
    assert [len(base.state) for base in bases] == sizes


def test_a_run_goes_on_from_a_file_to_the_bit(make: Make) -> None:
    model = network()
    optimizer = vsam.VSAM(make(model), model=model, start=2)
    train(optimizer, model, range(7))
    state, saved = through_a_file(optimizer.state_dict()), through_a_file(model.state_dict())
    train(optimizer, model, range(7, 15))
    again = network()
    again.load_state_dict(saved)
    resumed = vsam.VSAM(make(again), model=again, start=2)
    resumed.load_state_dict(state)
    assert are_equal(resumed.state_dict(), state)
    train(resumed, again, range(7, 15))
    assert are_equal(weights(again), weights(model))
    assert are_equal(resumed.state_dict(), optimizer.state_dict())


def test_the_parameters_of_a_saved_state_are_numbered_through(make: Make) -> None:
    model = network()
    optimizer = vsam.SAM(make(model), model=model)
    train(optimizer, model, range(1))
    state = optimizer.state_dict()
    assert [i for group in state["param_groups"] for i in group["params"]] == [0, 1, 2, 3]
    assert sorted(state["state"]) == [0, 1, 2, 3]


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a group too few": lambda state: state["param_groups"].pop(),
    "a group too many": lambda state: state["param_groups"].append(state["param_groups"][0]),
    "a parameter too few in the last group": lambda state: state["param_groups"][-1].update(params=[]),
    "a buffer of another shape": lambda state: state["state"][3].update(exp_avg=torch.zeros(7), z=torch.zeros(7)),
    "a radius that cannot be": lambda state: state["param_groups"][-1].update(rho=math.nan),
    "no groups": lambda state: state.pop("param_groups"),
    "no state": lambda state: state.pop("state"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_state_leaves_every_base_unchanged(make: Make, damage: str) -> None:
    model = network()
    optimizer = vsam.SAM(make(model), model=model)
    train(optimizer, model, range(3))
    bad = copy.deepcopy(optimizer.state_dict())
    DAMAGES[damage](bad)
    train(optimizer, model, range(3, 5))
    before = copy.deepcopy(optimizer.state_dict())
    groups = [base.param_groups for base in bases_of(optimizer.base)]
    with pytest.raises((ValueError, KeyError)):
        optimizer.load_state_dict(bad)
    assert are_equal(optimizer.state_dict(), before)
    assert all(base.param_groups is own for base, own in zip(bases_of(optimizer.base), groups, strict=True))


def test_joined_bases_are_loaded_all_or_none(make: Make) -> None:
    model = network()
    base = Joined(make(model))
    bad = copy.deepcopy(base.state_dict())
    for group in bad["param_groups"]:
        group["lr"] = 7.0
    bad["param_groups"][-1]["params"] = []  # found out when the others have been loaded
    before = copy.deepcopy(base.state_dict())
    with pytest.raises(ValueError, match="size"):
        base.load_state_dict(bad)
    assert are_equal(base.state_dict(), before)


def test_what_was_kept_of_the_bases_can_be_put_back(make: Make) -> None:
    model = network()
    base = Joined(make(model))
    restore, before = keep_bases(base), copy.deepcopy(base.state_dict())
    other = copy.deepcopy(before)
    for group in other["param_groups"]:
        group["lr"] = 7.0
    base.load_state_dict(other)
    assert {group["lr"] for group in base.param_groups} == {7.0}
    restore()
    assert are_equal(base.state_dict(), before)


def test_a_parameter_in_two_bases_is_refused() -> None:
    model = network()
    with pytest.raises(ValueError, match="disjoint parameters, got one parameter in two of them"):
        vsam.SAM([SGD(model.parameters(), lr=0.1), AdamW([model[2].bias], lr=0.1)])


def test_a_group_is_added_to_one_of_the_bases_and_not_to_all() -> None:
    model = network()
    extra = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = vsam.SAM(LISTS["SGD and AdamW"](model), rho=0.2)
    with pytest.raises(ValueError, match=r"add_param_group cannot tell which of several bases"):
        optimizer.add_param_group({"params": [extra]})
    assert len(optimizer.param_groups) == 2
    bases_of(optimizer.base)[1].add_param_group({"params": [extra]})

    def closure() -> Tensor:
        loss = loss_of(model, 0) + extra.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert [group["rho"] for group in optimizer.param_groups] == [0.2] * 3
    assert bool((extra < 1).all())


def test_a_scheduler_moves_the_rates_of_all_bases() -> None:
    model = network()
    optimizer = vsam.SAM(LISTS["SGD and AdamW"](model), model=model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    train(optimizer, model, range(1))
    scheduler.step()
    assert [base.param_groups[0]["lr"] for base in bases_of(optimizer.base)] == [0.05, 0.005]
    assert scheduler.get_last_lr() == [0.05, 0.005]


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_goes_on_alike_and_apart(make: Make, name: str) -> None:
    model = network()
    optimizer = vsam.VSAM(make(model), model=model, start=2)
    train(optimizer, model, range(5))
    twin, other = COPIES[name]((model, optimizer))
    kept = weights(model)
    train(other, twin, range(5, 10))
    assert are_equal(weights(model), kept)
    train(optimizer, model, range(5, 10))
    assert are_equal(weights(model), weights(twin))
    assert not set(map(id, bases_of(optimizer.base))) & set(map(id, bases_of(other.base)))


def test_every_base_has_its_gradients_cleared(make: Make) -> None:
    model = network()
    optimizer = vsam.SAM(make(model), model=model)
    train(optimizer, model, range(1))
    optimizer.zero_grad(set_to_none=False)
    assert not any(parameter.grad.any() for parameter in model.parameters())  # type: ignore[union-attr]
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_hooks_of_each_base_run_once_a_step(make: Make) -> None:
    model, seen = network(), []  # type: nn.Sequential, list[Optimizer]
    optimizer = vsam.SAM(make(model), model=model)
    for base in bases_of(optimizer.base):
        base.register_step_post_hook(lambda base, *_: seen.append(base))
    train(optimizer, model, range(2))
    assert seen == bases_of(optimizer.base) * 2


class Switching(SGD):
    """Has two modes, as schedule-free optimizers do."""

    mode = "train"

    def train(self) -> None:
        self.mode = "train"

    def eval(self) -> None:
        self.mode = "eval"


def test_methods_that_some_bases_have_reach_those() -> None:
    model = network()
    switching = [Switching([parameter], lr=0.1) for parameter in model[0].parameters()]
    optimizer = vsam.SAM([switching[0], SGD(model[2].parameters(), lr=0.1), switching[1]], model=model)
    optimizer.eval()
    assert [base.mode for base in switching] == ["eval", "eval"]
    optimizer.train()
    assert [base.mode for base in switching] == ["train", "train"]
    assert optimizer.mode == "train"
    with pytest.raises(AttributeError, match="unheard_of"):
        optimizer.unheard_of()


def test_a_schedule_free_base_among_others_is_switched() -> None:
    schedulefree = pytest.importorskip("schedulefree")
    model = network()
    free = schedulefree.SGDScheduleFree(model[0].parameters(), lr=0.1)
    optimizer = vsam.SAM([free, AdamW(model[2].parameters(), lr=0.01)], model=model)
    optimizer.train()
    train(optimizer, model, range(5))
    trained = weights(model)
    optimizer.eval()
    averaged = weights(model)
    assert not torch.equal(trained[0], averaged[0])
    assert torch.equal(trained[2], averaged[2])
    optimizer.train()
    torch.testing.assert_close(weights(model), trained, rtol=1e-12, atol=1e-12)


class _Failing(SGD):
    """Steps until it is told to fail."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            raise RuntimeError("no step today")
        return super().step(closure)


@pytest.mark.parametrize("number", [0, 1])
def test_an_error_says_which_bases_had_stepped(number: int) -> None:
    model = network()
    values = list(model.parameters())
    bases = [_Failing(values[:2], lr=0.1), _Failing(values[2:], lr=0.1)]
    optimizer = vsam.VSAM(bases, model=model, start=2)
    train(optimizer, model, range(4))
    state, before = copy.deepcopy(optimizer.state_dict()), [value.clone() for value in values]
    bases[number].fails = True
    with pytest.raises(RuntimeError, match="no step today") as failure:
        train(optimizer, model, range(4, 5))
    notes = getattr(failure.value, "__notes__", [])
    assert [note.count("_Failing (base.bases[0]) had already stepped") for note in notes] == [1] * number
    assert [bool((now == then).all()) for now, then in zip(values, before, strict=True)] == [not number] * 2 + [
        True
    ] * 2
    assert are_equal(optimizer.state_dict(), state)
    bases[number].fails = False
    train(optimizer, model, range(4, 6))
    assert optimizer.state_dict()["sharpness"]["num_steps"] == 6
