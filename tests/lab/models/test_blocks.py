"""Each family's block, in float64, against the formula of its paper written with functions."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, batch_norm, conv2d, relu

from vsam.lab import models
from vsam.lab.models.layers import padded_shortcut


class Layers:
    """The convolutions and norms of a block, consumed in the order in which they are registered."""

    def __init__(self, block: nn.Module) -> None:
        self.convolutions: Iterator[nn.Conv2d] = (m for m in block.modules() if isinstance(m, nn.Conv2d))
        self.norms: Iterator[nn.BatchNorm2d] = (m for m in block.modules() if isinstance(m, nn.BatchNorm2d))

    def norm(self, x: Tensor) -> Tensor:
        layer = next(self.norms)
        return batch_norm(x, None, None, layer.weight, layer.bias, training=True)

    def conv(self, x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
        weight = next(self.convolutions).weight
        return conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2, groups=groups)

    def assert_consumed(self) -> None:
        assert next(self.convolutions, None) is None
        assert next(self.norms, None) is None


def widen(x: Tensor, channels: int) -> Tensor:
    return torch.cat([x, x.new_zeros(len(x), channels - x.shape[1], *x.shape[2:])], dim=1)


def resnet18(layers: Layers, x: Tensor, stride: int, channels: int) -> Tensor:
    out = layers.norm(layers.conv(relu(layers.norm(layers.conv(x, stride)))))
    return relu(out + (x if stride == 1 else layers.norm(layers.conv(x, stride))))


def resnet_cifar(layers: Layers, x: Tensor, stride: int, channels: int) -> Tensor:
    out = layers.norm(layers.conv(relu(layers.norm(layers.conv(x, stride)))))
    return relu(out + widen(x[:, :, ::stride, ::stride], channels))


def wide_resnet(layers: Layers, x: Tensor, stride: int, channels: int) -> Tensor:
    activated = relu(layers.norm(x))
    out = layers.conv(relu(layers.norm(layers.conv(activated, stride))))
    return out + (x if x.shape[1] == channels else layers.conv(activated, stride))


def pyramidnet(layers: Layers, x: Tensor, stride: int, channels: int) -> Tensor:
    out = layers.norm(layers.conv(relu(layers.norm(layers.conv(layers.norm(x), stride)))))
    return out + widen(avg_pool2d(x, stride), channels)


def mobilenet(layers: Layers, x: Tensor, stride: int, channels: int) -> Tensor:
    out = relu(layers.norm(layers.conv(x, stride, groups=x.shape[1])))
    return relu(layers.norm(layers.conv(out)))


@pytest.mark.parametrize(
    ("name", "formula", "stage", "position", "in_channels", "out_channels", "stride"),
    [
        ("resnet18", resnet18, 0, 0, 64, 64, 1),
        ("resnet18", resnet18, 1, 0, 64, 128, 2),
        ("resnet18", resnet18, 3, 1, 512, 512, 1),
        ("resnet14", resnet_cifar, 0, 1, 16, 16, 1),
        ("resnet14", resnet_cifar, 1, 0, 16, 32, 2),
        ("resnet14", resnet_cifar, 2, 0, 32, 64, 2),
        ("wrn16-1", wide_resnet, 0, 0, 16, 16, 1),
        ("wrn16-2", wide_resnet, 0, 0, 16, 32, 1),
        ("wrn16-2", wide_resnet, 0, 1, 32, 32, 1),
        ("wrn16-2", wide_resnet, 2, 0, 64, 128, 2),
        ("pyramidnet14-30", pyramidnet, 0, 0, 16, 21, 1),
        ("pyramidnet14-30", pyramidnet, 1, 0, 26, 31, 2),
        ("pyramidnet14-30", pyramidnet, 2, 1, 41, 46, 1),
        ("pyramidnet14-1", pyramidnet, 0, 1, 16, 16, 1),
        ("mobilenet", mobilenet, 0, 0, 32, 64, 1),
        ("mobilenet", mobilenet, 3, 0, 256, 512, 2),
        ("mobilenet", mobilenet, 3, 5, 512, 512, 1),
    ],
)
def test_block_equals_its_formula(name, formula, stage, position, in_channels, out_channels, stride) -> None:
    torch.manual_seed(0)
    block = models.build(name).double().stages[stage][position]
    for parameter in block.parameters():
        # Ones and zeros in the norms would hide an exchanged norm.
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, in_channels, 8, 8, dtype=torch.float64)
    layers = Layers(block)
    expected = formula(layers, x, stride, out_channels)
    layers.assert_consumed()
    torch.testing.assert_close(block(x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("resnet18", [32, 16, 8, 4]),
        ("resnet20", [32, 16, 8]),
        ("wrn28-10", [32, 16, 8]),
        ("pyramidnet110", [32, 16, 8]),
        ("mobilenet", [32, 16, 8, 4, 2]),
    ],
)
def test_every_stage_but_the_first_halves_the_image(name: str, sizes: list[int]) -> None:
    with torch.device("meta"):
        model = models.build(name)
        features = model.stem(torch.empty(1, 3, 32, 32))
        found = []
        for stage in model.stages:
            features = stage(features)
            found.append(features.shape[-1])
    assert found == sizes


def test_pyramid_widens_by_five_a_block() -> None:
    with torch.device("meta"):
        model = models.build("pyramidnet110")
    widths = [block.branch[-1].num_features for stage in model.stages for block in stage]
    assert widths == list(range(21, 287, 5))


def test_logits_are_the_classifier_of_the_mean_feature() -> None:
    torch.manual_seed(0)
    model = models.build("wrn10-1").double()
    images = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    features = relu(Layers(model.head).norm(model.stages(model.stem(images))))
    expected = features.flatten(2).sum(2) / 9 @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(images), expected)


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("size", [1, 7, 8])
def test_padded_shortcut_has_the_size_of_a_strided_convolution(size: int, window: int) -> None:
    x = torch.randn(1, 2, size, size)
    expected = conv2d(x, torch.zeros(5, 2, 3, 3), stride=2, padding=1).shape
    assert padded_shortcut(2, 5, stride=2, window=window)(x).shape == expected


def test_padded_shortcut_without_change_is_the_identity() -> None:
    x = torch.randn(1, 2, 4, 4)
    assert padded_shortcut(2, 2, stride=1, window=2)(x) is x
