"""The running statistics of normalisation layers are those of a run with only first passes."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import vsam
from contract_table import (
    BATCHES,
    LENGTH,
    Run,
    assert_same,
    every_method,
    every_style,
    generators,
    network,
    set_generators,
)


def _buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


def _instance_norm() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 5)),
        nn.Conv1d(1, 4, 2),
        nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def _cumulative() -> nn.Sequential:
    model = network()
    model[2] = nn.BatchNorm1d(8, momentum=None)
    return model


@every_style
@pytest.mark.parametrize("make", [network, _instance_norm, _cumulative])
def test_only_first_passes_count(method: str, make: Callable[[], nn.Sequential], style: str) -> None:
    run, shadow = Run(method, model=make()), make()  # the shadow sees the same weights and takes the first pass only
    for number in range(14):
        shadow.load_state_dict(run.model.state_dict())
        before = generators()
        shadow(BATCHES[number % LENGTH][0])
        set_generators(before)
        getattr(run, style)(number)
        assert_same(_buffers(run.model), _buffers(shadow))


@every_method
def test_batch_count_is_the_number_of_steps(method: str) -> None:
    assert int(Run(method).go().model[2].num_batches_tracked) == LENGTH


@pytest.mark.parametrize("make", [network, _instance_norm])
def test_a_closure_may_switch_the_mode_itself(make: Callable[[], nn.Sequential]) -> None:
    """It trains, leaves the model in evaluation mode, and its second pass trains again."""
    run, shadow = Run("sam", model=make()), make()
    shadow.load_state_dict(run.model.state_dict())
    before = generators()
    shadow(BATCHES[0][0])
    set_generators(before)

    def closure() -> torch.Tensor:
        run.model.train()
        loss = run.loss(0)
        loss.backward()
        run.model.eval()
        return loss

    run.optimizer.step(closure)
    assert_same(_buffers(run.model), _buffers(shadow))


@every_method
def test_layers_track_again_after_the_step(method: str) -> None:
    run = Run(method).go(last=2)
    layer = run.model[2]
    assert layer.track_running_stats
    assert layer.running_mean is not None


@pytest.mark.parametrize("make", [network, _instance_norm])
def test_layers_in_evaluation_mode_are_left_alone(make: Callable[[], nn.Sequential]) -> None:
    """A frozen layer normalises by its running statistics in both passes."""
    run, seen = Run("sam", model=make(), rho=0.0), []
    layer = run.model[2].eval()
    layer.running_mean.fill_(0.5)
    before = _buffers(run.model)
    layer.register_forward_hook(lambda module, inputs, output: seen.append((module.training, output.detach().clone())))
    run.step(0)
    assert len(seen) == 2
    assert_same(seen[0], seen[1])
    assert_same(_buffers(run.model), before)


def test_the_second_pass_normalises_by_its_own_batch() -> None:
    run, seen = Run("sam", rho=1.0), []
    run.model[2].register_forward_hook(
        lambda layer, inputs, output: seen.append((inputs[0], output, layer.weight.clone(), layer.bias.clone()))
    )
    run.step(0)
    for inputs, output, weight, bias in seen:
        standard = (inputs - inputs.mean(0)) / (inputs.var(0, correction=0) + 1e-5).sqrt()
        torch.testing.assert_close(output, standard * weight + bias)
    assert not torch.equal(seen[0][0], seen[1][0])


def test_layers_that_never_track_still_do_not() -> None:
    model = network()
    model[2] = nn.BatchNorm1d(8, track_running_stats=False)
    run = Run("sam", model=model).go(last=2)
    assert not run.model[2].track_running_stats
    assert run.model[2].running_mean is None


def test_a_layer_shared_by_two_places_is_thawed() -> None:
    layer = nn.BatchNorm1d(5)
    model = nn.Sequential(layer, nn.Linear(5, 5), layer, nn.Linear(5, 3))
    run = Run("sam", model=model).go(last=3)
    assert layer.track_running_stats
    assert int(layer.num_batches_tracked) == 6
    assert run.optimizer.num_samples == 3


def test_without_a_model_the_statistics_are_not_known() -> None:
    """The reason for `model=`: without it both passes are counted."""
    model = network()
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1))

    def closure() -> torch.Tensor:
        loss = model(BATCHES[0][0]).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert int(model[2].num_batches_tracked) == 2
