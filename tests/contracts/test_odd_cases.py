"""Cases at the edge of what users do, each of which once went wrong."""

import copy
import warnings

import pytest
import torch
from torch import nn

import vsam
from contract_table import LENGTH, Run, assert_same, every_method, generators, set_generators


def test_a_psf_that_overflows_is_dropped() -> None:
    """Two finite half-precision gradients may differ by more than the type can hold."""
    weight = nn.Parameter(torch.ones(1, dtype=torch.float16))
    optimizer = vsam.VSAM(torch.optim.SGD([weight], lr=1e-6), start=1, window=10)
    gradients = iter([6e4, -6e4, 1.0, 1.0])

    def closure() -> None:
        weight.grad = torch.full_like(weight, next(gradients))

    for _ in range(3):
        optimizer.step(closure)
    assert weight.isfinite().all()


def test_the_smallest_gradients_do_not_divide_by_zero() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = vsam.LookSAM(torch.optim.SGD([weight], lr=0.1))

    def closure() -> torch.Tensor:
        loss = (weight * 1e-30).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert weight.isfinite().all()


def test_what_is_maximised_is_perturbed_downwards() -> None:
    weight, seen = nn.Parameter(torch.tensor([1.0])), []
    optimizer = vsam.SAM(torch.optim.SGD([weight], lr=0.1, maximize=True), rho=0.1)

    def closure() -> torch.Tensor:
        seen.append(weight.item())
        gain = -weight.square().sum()
        gain.backward()
        return gain

    optimizer.step(closure)
    assert seen == pytest.approx([1.0, 1.1])  # farther from the maximum at 0
    assert weight.item() == pytest.approx(1.0 - 0.1 * 2.2)


def test_a_gradient_with_a_graph_leaves_none_in_the_memory() -> None:
    run = Run("vsam")

    def closure() -> torch.Tensor:
        loss = run.loss(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of the cycle, which the user asked for
            loss.backward(create_graph=True)
        return loss

    run.optimizer.step(closure)
    copy.deepcopy(run.optimizer.state_dict())


def test_one_tensor_as_the_gradient_of_two_parameters() -> None:
    first, second = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    optimizer, moves = vsam.SAM(torch.optim.SGD([first, second], lr=0.1), rho=0.1), []

    def closure() -> None:
        moves.append((first - 1).norm().item())
        first.grad = second.grad = torch.ones(4)

    optimizer.step(closure)
    assert moves == pytest.approx([0.0, 0.1 / 2**0.5], rel=1e-5)


def test_an_expanded_gradient() -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = vsam.SAM(torch.optim.SGD([weight], lr=0.1))
    optimizer.step(lambda: setattr(weight, "grad", torch.ones(1).expand(3)))
    assert torch.equal(weight, torch.full((3,), 0.9))


@every_method
def test_copies_made_in_a_closure_leave_the_second_pass_alone(method: str) -> None:
    plain, copying = Run(method).go(last=3), Run(method)
    for number in range(3):
        copying.optimizer.step(copying.closure(number, before=lambda: copy.deepcopy(copying.optimizer)))
    assert_same(copying.weights(), plain.weights())


def _refuse(*_: object) -> None:
    raise KeyError("no room")


@pytest.mark.parametrize("method", ["vsam", "vsam-released"])
def test_a_base_that_fails_does_not_cost_a_draw(method: str) -> None:
    plain, failing = Run(method).go(), Run(method)
    for number in range(LENGTH):
        if number in (13, 15, 18):
            buffers, states = copy.deepcopy(failing.model.state_dict()), generators()
            hook = failing.optimizer.base.register_step_pre_hook(_refuse)
            with pytest.raises(KeyError):
                failing.step(number)
            hook.remove()
            failing.model.load_state_dict(buffers)
            set_generators(states)
        failing.step(number)
    assert failing.samples == plain.samples
    assert_same(failing.weights(), plain.weights())


def test_a_frozen_parameter_with_an_old_gradient_stays() -> None:
    run = Run("sam", "momentum")
    run.step_without_closure(0)
    layer = run.model[1]
    layer.requires_grad_(False)
    frozen = layer.weight.detach().clone()
    run.loss(1).backward()
    if run.optimizer.perturb():
        run.loss(1).backward()
    run.optimizer.step()
    assert torch.equal(layer.weight, frozen)


@pytest.mark.parametrize("is_inner", [True, False])
def test_a_compiled_model_repeats_its_masks(is_inner: bool) -> None:
    """Between the passes of one step with rho = 0 nothing but the masks could differ."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    compiled = torch.compile(model, backend="eager")
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.0), model=model if is_inner else compiled, rho=0.0)
    inputs = torch.randn(16, 4)
    compiled(inputs).sum().backward()
    first = [parameter.grad.clone() for parameter in model.parameters()]
    assert optimizer.perturb()
    compiled(inputs).sum().backward()
    optimizer.step()
    assert_same([parameter.grad for parameter in model.parameters()], first)


@pytest.mark.parametrize("perturbs_scaled", [True, False])
def test_perturb_and_step_of_different_scales_are_refused(perturbs_scaled: bool) -> None:
    run, scaler = Run("vsam"), vsam.amp.GradScaler("cpu")
    weights = run.weights()
    scaler.scale(run.loss(0)).backward()
    assert scaler.perturb(run.optimizer) if perturbs_scaled else run.optimizer.perturb()
    scaler.scale(run.loss(0)).backward()
    with pytest.raises(RuntimeError, match=r"scaler\.perturb\(optimizer\)"):
        run.optimizer.step() if perturbs_scaled else scaler.step(run.optimizer)
    assert_same(run.weights(), weights)


def test_a_refused_radius_in_a_state_changes_nothing() -> None:
    run = Run("sam")
    state = copy.deepcopy(run.optimizer.state_dict())
    state["param_groups"][0]["rho"] = -1.0
    with pytest.raises(ValueError, match=r"rho must not be negative, got -1\.0"):
        run.optimizer.load_state_dict(state)
    assert run.optimizer.param_groups[0]["rho"] == 0.05


def test_a_complex_parameter_is_refused_by_name() -> None:
    model = nn.Linear(2, 2, dtype=torch.complex64)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)

    def closure() -> torch.Tensor:
        loss = model(torch.ones(1, 2, dtype=torch.complex64)).abs().sum()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="weight is complex"):
        optimizer.step(closure)
