"""The weights are back bit for bit after the second pass, in their old storage."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import Run, argument, assert_same, every_case, every_method, network


def _weights_at_base_step(run: Run) -> list[list[Tensor]]:
    """The weights that the base optimizer finds at each of its steps."""
    found: list[list[Tensor]] = []
    run.optimizer.base.register_step_pre_hook(lambda *_: found.append(run.weights()))
    return found


@every_case
def test_base_finds_the_weights_that_the_step_began_with(method: str, base: str) -> None:
    run = Run(method, base)
    found, addresses = _weights_at_base_step(run), [p.data_ptr() for p in run.model.parameters()]
    for number in range(14):
        before = run.weights()
        run.step(number)
        assert_same(found[-1], before)
    assert [p.data_ptr() for p in run.model.parameters()] == addresses


@every_method
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_in_other_precisions(method: str, dtype: torch.dtype) -> None:
    run = Run(method, "momentum", model=network().to(dtype))
    found = _weights_at_base_step(run)
    for number in range(8):
        before = run.weights()
        run.step(number)
        assert_same(found[-1], before)
        assert all(p.dtype == dtype for p in run.model.parameters())


def test_second_pass_is_taken_somewhere_else() -> None:
    run, seen = Run("sam", rho=0.5), []
    closure = run.closure(0)
    run.optimizer.step(lambda: (seen.append(run.weights()), closure())[1])
    first, second = seen
    distance = sum(float((a - b).square().sum()) for a, b in zip(first, second, strict=True)) ** 0.5
    assert distance == pytest.approx(0.5, rel=1e-4)


class _Branches(nn.Module):
    """Two layers of which each pass uses the ones it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = nn.Linear(3, 1), nn.Linear(3, 1)

    def forward(self, inputs: Tensor, both: bool) -> Tensor:
        return self.always(inputs) + (self.sometimes(inputs) if both else 0)


def _one_branch(method: str, plan: list[bool]) -> tuple[list[Tensor], list[Tensor], nn.Module, vsam.SharpnessAware]:
    torch.manual_seed(0)
    model, inputs = _Branches(), torch.randn(4, 3)
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    makers: dict[str, Callable[..., vsam.SharpnessAware]] = {
        "sam": vsam.SAM,
        "asam": vsam.ASAM,
        "looksam": vsam.LookSAM,
        "vsam": vsam.VSAM,
        "esam": lambda base, model: vsam.ESAM(base, model=model, beta=1.0, gamma=1.0),
    }
    optimizer = makers[method](base, model=model)
    found: list[list[Tensor]] = []
    base.register_step_pre_hook(lambda *_: found.append([p.detach().clone() for p in model.parameters()]))
    before, passes = [p.detach().clone() for p in model.parameters()], iter(plan)

    def losses(keep: Tensor | None = None) -> Tensor:
        return model(inputs, next(passes)).square().mean(dim=1)

    optimizer.step(argument(method, losses))
    return before, found[0], model, optimizer


@pytest.mark.parametrize("method", ["sam", "asam", "looksam", "vsam", "esam"])
@pytest.mark.parametrize("plan", [[True, False], [False, True]], ids=["first only", "second only"])
def test_when_a_parameter_has_a_gradient_in_one_pass_only(method: str, plan: list[bool]) -> None:
    before, found, model, optimizer = _one_branch(method, plan)
    assert_same(found, before)
    moved = [not torch.equal(p, w) for p, w in zip(model.parameters(), before, strict=True)]
    # What only the first pass gave counts as zero in the second, so the base steps with zero.
    assert moved == ([True, True, False, False] if plan[0] else [True, True, True, True])
    if method == "vsam":
        memory = optimizer.state_dict()["sharpness"]["memory"]
        assert sorted(memory) == [0, 1, 2, 3]
        assert all(float(memory[i].abs().max()) > 0 for i in (2, 3))


def test_weights_that_are_not_contiguous_stay_where_they_are() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).to(memory_format=torch.channels_last)
    optimizer = vsam.VSAM(torch.optim.SGD(model.parameters(), lr=0.0), model=model)
    before = [(p.data_ptr(), p.stride(), p.detach().clone()) for p in model.parameters()]
    inputs = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)

    def closure() -> Tensor:
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    for parameter, (address, stride, weights) in zip(model.parameters(), before, strict=True):
        assert (parameter.data_ptr(), parameter.stride()) == (address, stride)
        assert_same(parameter.detach(), weights)


def test_tied_weights_are_moved_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.0), model=model, rho=0.25)
    before, seen = model[0].weight.detach().clone(), []

    def closure() -> Tensor:
        seen.append(model[0].weight.detach().clone())
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert float((seen[1] - before).norm()) == pytest.approx(0.25, rel=1e-4)
    assert_same(model[0].weight.detach(), before)
