"""Quantized networks under SGD, SAM, vSAM and others keep the promises, step sizes and first batch included."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import assert_same, network, set_generators
from trajectory.training import LENGTH, Training
from vsam.quantize import QuantizedLayer, parameter_groups, quantize
from vsam.quantize.lsq import positive_step

every_optimizer = pytest.mark.parametrize("optimizer", ["momentum", "sam", "vsam", "vsam-fused"])
every_aware_optimizer = pytest.mark.parametrize("optimizer", ["sam", "vsam", "looksam-5-lion"])


def _run(optimizer: str, perturb_steps: bool = True, rho: float | None = None) -> Training:
    """A run of a coarsely quantized network whose step sizes have a group of their own."""
    model = quantize(network(), first_last_bits=4)
    groups = parameter_groups(model, perturb_steps=perturb_steps)
    run = Training("plain", optimizer, model, groups)
    if rho is not None:
        for group in run.optimizer.param_groups:
            group["rho"] = rho
    return run


def _layers(run: Training) -> list[QuantizedLayer]:
    return [module for module in run.model.modules() if isinstance(module, QuantizedLayer)]


def _steps(run: Training) -> list[Tensor]:
    return [step for layer in _layers(run) for step in (layer.weight_step, layer.activation_step)]


def _copies(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@every_aware_optimizer
@pytest.mark.parametrize("perturb_steps", [True, False])
def test_weights_and_steps_are_back_bit_for_bit_in_their_storage(optimizer: str, perturb_steps: bool) -> None:
    run, found = _run(optimizer, perturb_steps), []
    run.step(0)  # sets the steps of the inputs
    parameters = list(run.model.parameters())
    addresses = [parameter.data_ptr() for parameter in parameters]
    run.optimizer.base.register_step_pre_hook(lambda *_: found.append(_copies(parameters)))
    for number in range(1, LENGTH):
        before = _copies(parameters)
        run.step(number)
        assert_same(found[-1], before)
    assert [parameter.data_ptr() for parameter in parameters] == addresses
    assert run.optimizer.num_samples > 3


@every_aware_optimizer
@pytest.mark.parametrize("perturb_steps", [True, False])
def test_steps_move_in_the_second_pass_or_are_left_out(optimizer: str, perturb_steps: bool) -> None:
    run, seen = _run(optimizer, perturb_steps), []
    run.model.register_forward_hook(lambda *_: seen.append(torch.stack(_copies(_steps(run)))))
    run.step(0)
    first, second = seen
    assert torch.equal(first, second) is not perturb_steps


@every_aware_optimizer
def test_the_first_pass_of_the_first_batch_sets_the_steps(optimizer: str) -> None:
    run, alone = _run(optimizer), _run("momentum")
    for group in run.optimizer.param_groups:
        group.update(lr=0.0, weight_decay=0.0)
    alone.loss(0)
    set_generators(_run(optimizer).everything()["generators"])  # the draws of the first batch again
    for number in range(3):
        run.step(number)
    assert all(layer.has_step() for layer in _layers(run))
    assert_same(_copies(_steps(run)), _copies(_steps(alone)))


@every_optimizer
def test_saved_at_any_time_and_loaded_it_goes_on_bit_for_bit(optimizer: str) -> None:
    """Also before the first batch, whose flags say that the steps are not set yet."""
    straight, saved = _run(optimizer), []
    for number in range(LENGTH):
        if number in (0, 1, 13, 17):
            saved.append((number, straight.save()))
        straight.step(number)
    expected = straight.everything()
    for number, entries in saved:
        resumed = _run(optimizer).go(last=2).load(entries)
        assert all(layer.has_step() == (number > 0) for layer in _layers(resumed))
        assert_same(resumed.go(first=number).everything(), expected)


WAYS: dict[str, Callable] = {"deepcopy": copy.deepcopy, "pickle": lambda run: pickle.loads(pickle.dumps(run))}


@every_optimizer
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [0, 14])
def test_a_copy_goes_on_identically_and_independently(optimizer: str, way: str, at: int) -> None:
    original, twin = _run(optimizer).go(last=at), _run(optimizer)
    before = original.everything()
    twin.model, twin.optimizer = WAYS[way]((original.model, original.optimizer))
    set_generators(before["generators"])
    twin.go(first=at)
    set_generators(before["generators"])
    assert_same(original.everything(), before)
    original.go(first=at)
    assert_same(twin.everything(), original.everything())


@every_optimizer
def test_batches_are_counted_once_a_step(optimizer: str) -> None:
    assert int(_run(optimizer).go().model[2].num_batches_tracked) == LENGTH


@pytest.mark.parametrize("optimizer", ["sam", "vsam", "looksam-5", "ae-sam", "asam"])
def test_without_a_radius_it_is_the_base(optimizer: str) -> None:
    run, base = _run(optimizer, rho=0.0).go(), _run("momentum").go()
    assert run.optimizer.num_samples > 3
    assert_same(run.everything()["model"], base.everything()["model"])


@pytest.mark.filterwarnings("ignore:A gradient was not finite:RuntimeWarning")
@every_aware_optimizer
@pytest.mark.parametrize("rho", [0.05, 1e4, 1e12, 3e38])
def test_steps_in_force_are_positive_however_far_they_are_pushed(optimizer: str, rho: float) -> None:
    run, raw = _run(optimizer, rho=rho), []

    def look(*_: object) -> None:
        steps = torch.stack(_copies(_steps(run)))
        raw.append(steps)
        assert (positive_step(steps) > 0).all()
        assert all(layer.quantized_weight().isfinite().all() for layer in _layers(run)) or rho > 1e12

    run.model.register_forward_hook(look)
    run.go()
    was_pushed = min(float(steps.min()) for steps in raw) < 0
    assert was_pushed is (rho > 1), "a large radius must have pushed some below zero"
    assert all(parameter.isfinite().all() for parameter in run.model.parameters())
    assert run.optimizer.num_skipped == 0 or rho > 1e4


@every_aware_optimizer
def test_frozen_steps_stay(optimizer: str) -> None:
    run = _run(optimizer)
    run.step(0)
    for step in _steps(run):
        step.requires_grad_(False)
    frozen, seen = _copies(_steps(run)), []
    run.model.register_forward_hook(lambda *_: seen.append(_copies(_steps(run))))
    run.go(first=1)
    assert len(seen) > LENGTH
    for steps in seen:
        assert_same(steps, frozen)
    assert not any(step.requires_grad for step in _steps(run))


def test_esam_chooses_samples_of_a_quantized_network() -> None:
    """Three calls in the first step, one first batch."""
    torch.manual_seed(0)
    model = quantize(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = vsam.ESAM(torch.optim.SGD(parameter_groups(model), lr=0.05), model=model, rho=0.5)
    inputs, labels, seen = torch.randn(8, 5), torch.randint(3, (8,)), []

    def losses(keep: Tensor | None = None) -> Tensor:
        chosen = slice(None) if keep is None else keep
        values = nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen], reduction="none")
        seen.append(model[2].activation_step.item())
        return values

    first = optimizer.step(losses)
    assert len(seen) == 3
    assert seen[1] == seen[2]
    for _ in range(30):
        loss = optimizer.step(losses)
    assert loss < first
