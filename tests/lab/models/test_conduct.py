"""The library's requirements on a model: order, plain layers, copies, memory formats, compilation."""

import copy
import pickle

import pytest
import torch
from torch import nn

from vsam.lab import models

SMALL = ["resnet18", "resnet8", "wrn10-1", "pyramidnet8-9", "mobilenet-25"]


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    return models.build(name)


@pytest.mark.parametrize("name", models.names())
def test_classifier_ends_the_parameters_and_stem_begins_them(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name)
    parameters = list(model.parameters())
    assert parameters[-2] is model.classifier.weight
    assert parameters[-1] is model.classifier.bias
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    assert first.in_channels == 3
    assert parameters[0] is first.weight


@pytest.mark.parametrize("name", models.names())
def test_parameters_belong_to_plain_layers_used_once(name: str) -> None:
    with torch.device("meta"):
        model = models.build(name)
        calls: list[nn.Module] = []
        owners = [module for module in model.modules() if list(module.parameters(recurse=False))]
        for module in owners:
            module.register_forward_hook(lambda module, inputs, output: calls.append(module))
        model(torch.empty(2, 3, 32, 32))
    assert {type(module) for module in owners} == {nn.Conv2d, nn.BatchNorm2d, nn.Linear}
    assert len(calls) == len(owners)
    assert set(calls) == set(owners)


@pytest.mark.parametrize("name", SMALL)
def test_a_layer_can_be_replaced(name: str) -> None:
    class Doubled(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return 2 * self.layer(inputs)

    model, images = small(name).eval(), torch.randn(2, 3, 16, 16)
    before = model(images)
    model.classifier = Doubled(model.classifier)
    torch.testing.assert_close(model(images), 2 * before)


@pytest.mark.parametrize("name", SMALL)
def test_deepcopy_and_pickle_are_equal_and_independent(name: str) -> None:
    model, images = small(name).eval(), torch.randn(2, 3, 16, 16)
    expected = model(images)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(images), expected)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert torch.equal(model(images), expected)


@pytest.mark.parametrize("name", SMALL)
def test_state_dict_round_trip(name: str) -> None:
    model, images = small(name), torch.randn(4, 3, 16, 16)
    model(images)  # moves the running statistics away from their start
    torch.manual_seed(1)
    twin = models.build(name)
    twin.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(twin.eval()(images), model.eval()(images))


@pytest.mark.parametrize("name", SMALL)
def test_channels_last_is_kept_and_changes_nothing(name: str) -> None:
    model, images = small(name).double(), torch.randn(4, 3, 16, 16, dtype=torch.float64)
    expected = model(images)
    strided: list[bool] = []
    model = model.to(memory_format=torch.channels_last)
    model.stages.register_forward_hook(
        lambda module, inputs, output: strided.append(output.is_contiguous(memory_format=torch.channels_last))
    )
    torch.testing.assert_close(model(images.contiguous(memory_format=torch.channels_last)), expected)
    assert strided == [True]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_compiles_into_one_graph(name: str) -> None:
    torch.compiler.reset()
    model, images = small(name), torch.randn(4, 3, 16, 16)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), twin(images))
    compiled(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
