"""The lab's models by name: `build("wrn28-10", num_classes=100)`."""

import re
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from vsam.lab import plugins
from vsam.lab.errors import UserError, nearest

if TYPE_CHECKING:  # names are also completed, without torch
    from torch import nn

__all__ = ["ModelRow", "build", "canonical", "count_parameters", "describe", "is_known", "names"]

_STRUCTURES = {
    "resnet18": "3×3 stem, 64-128-256-512 × 2 basic blocks, 1×1 convolution + BatchNorm shortcut",
    "wrn28-10": "4 pre-activation blocks per stage, 160-320-640, 1×1 shortcut without BatchNorm",
    "pyramidnet110": "alpha 270, 18 blocks per stage, 16 to 286 channels by 5 per block, zero-padded shortcut",
    "mobilenet": "MobileNetV1, 13 depthwise separable blocks, 64 to 1024 channels, stride-1 stem",
    "resnet8": "1 basic block per stage, 16-32-64, zero-padded shortcut",
    "resnet20": "3 basic blocks per stage, 16-32-64, zero-padded shortcut",
    "wrn16-2": "2 pre-activation blocks per stage, 32-64-128, 1×1 shortcut without BatchNorm",
}


class ModelRow(TypedDict):
    """A line of `describe()`."""

    name: str
    parameters_10: int
    parameters_100: int
    structure: str


class _Entry(NamedTuple):
    name: str
    make: "Callable[[int, int], nn.Module]"


def build(name: str, num_classes: int = 10, in_channels: int = 3) -> "nn.Module":
    """Build a model by name. Its weights are drawn from torch's global generator.

    Arguments:
        name: one of `names()`, or by rule `resnetD` (D = 6n+2), `wrnD-K` (D = 6n+4), `pyramidnetD` or
            `pyramidnetD-ALPHA` (D = 6n+2), `mobilenet-W` (W percent of the channels). Case, spaces, `-` and `_` do
            not matter: `WRN-28-10`, `wrn28_10`.
        num_classes: number of classes, at least 1.
        in_channels: channels of the images, at least 1. Their height and width are arbitrary.

    Example:
        >>> build("ResNet-18", num_classes=100)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])
    """
    from torch import nn

    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}.")
    if in_channels < 1:
        raise ValueError(f"in_channels must be at least 1, got {in_channels}.")
    brought = plugins.find_plugin("model", name)
    if brought is None:
        return _find(name).make(num_classes, in_channels)
    model = plugins.call(brought, {"num_classes": num_classes, "in_channels": in_channels})
    if not isinstance(model, nn.Module):
        raise UserError(f"Model {name!r} of {brought.origin} must return an nn.Module, got {type(model).__name__}.")
    return model


def canonical(name: str) -> str:
    """The canonical spelling of an accepted name: `canonical("WRN_28_10") == "wrn28-10"`."""
    if plugins.find_plugin("model", name):
        return name
    return _checked(name)


@cache
def _checked(name: str) -> str:
    """The canonical spelling if it is one of ours and can be built."""
    import torch

    with torch.device("meta"):
        _find(name).make(10, 3)
    return _find(name).name


def is_known(name: str) -> bool:
    """Return True if vsam itself builds a model of that name."""
    try:
        _find(name)
    except ValueError:
        return False
    return True


def names() -> list[str]:
    """The listed models. `build` also accepts other depths and widths by rule."""
    return [*_STRUCTURES, *(brought.name for brought in plugins.list_plugins("model"))]


def describe() -> list[ModelRow]:
    """A row per listed model. Nothing is allocated and no random numbers are drawn."""
    return [
        ModelRow(
            name=name,
            parameters_10=count_parameters(name, 10),
            parameters_100=count_parameters(name, 100),
            structure=structure,
        )
        for name, structure in _structures().items()
    ]


def count_parameters(name: str, num_classes: int = 10, in_channels: int = 3) -> int:
    """The number of trainable parameters. Nothing is allocated."""
    if plugins.find_plugin("model", name):  # which may have changed
        return _count.__wrapped__(name, num_classes, in_channels)
    return _count(name, num_classes, in_channels)


@cache
def _count(name: str, num_classes: int, in_channels: int) -> int:
    import torch

    with torch.device("meta"):
        model = build(name, num_classes, in_channels)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _structures() -> dict[str, str]:
    return _STRUCTURES | {brought.name: brought.summary for brought in plugins.list_plugins("model")}


def _find(name: str) -> _Entry:
    from vsam.lab.models.mobilenet import MobileNet
    from vsam.lab.models.pyramidnet import PyramidNet
    from vsam.lab.models.resnet import ResNet18
    from vsam.lab.models.resnet_cifar import ResNetCIFAR
    from vsam.lab.models.wide_resnet import WideResNet

    match _split(name):
        case "resnet", (18,):
            return _Entry("resnet18", ResNet18)
        case "resnet", ((50 | 152) as depth,):
            raise ValueError(
                f"resnet{depth} is ImageNet's network of bottleneck blocks, which is not included. "
                f"Use a CIFAR ResNet of nearby depth: resnet{depth - 6} or resnet{depth + 6}."
            )
        case "resnet", (depth,):
            return _Entry(f"resnet{depth}", partial(ResNetCIFAR, depth))
        case (("wrn" | "wideresnet"), (depth, width)):
            return _Entry(f"wrn{depth}-{width}", partial(WideResNet, depth, width))
        case "pyramidnet", ((depth,) | (depth, 270)):
            return _Entry(f"pyramidnet{depth}", partial(PyramidNet, depth, 270))
        case "pyramidnet", (depth, alpha):
            return _Entry(f"pyramidnet{depth}-{alpha}", partial(PyramidNet, depth, alpha))
        case ("mobilenet", () | (100,)) | ("mobilenetv", (1,)):
            return _Entry("mobilenet", MobileNet)
        case "mobilenet", (width,):
            return _Entry(f"mobilenet-{width}", partial(MobileNet, width=width))
    raise ValueError(_unknown(name))


def _split(name: str) -> tuple[str, tuple[int, ...]]:
    """Family and numbers: `Wide_ResNet-28-10` gives `("wideresnet", (28, 10))`."""
    spelled = re.sub(r"[-_\s]+", "-", name.strip().lower())
    found = re.fullmatch(r"([a-z-]*[a-z])((?:-?[0-9]+)(?:-[0-9]+)*)?", spelled)
    if found is None:
        return "", ()
    family, numbers = found.groups(default="")
    return family.replace("-", ""), tuple(int(number) for number in re.findall(r"[0-9]+", numbers))


def _unknown(name: str) -> str:
    return (
        f"unknown model {name!r}.{nearest(name.strip().lower(), names())} Also by rule: resnetD with D = 6n+2, wrnD-K "
        "with D = 6n+4, pyramidnetD-ALPHA with D = 6n+2, mobilenet-W with W percent of the channels. Add your own "
        "with --use FILE.py."
    )
