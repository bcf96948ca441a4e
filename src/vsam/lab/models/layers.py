"""Parts of all networks: convolutions, shortcuts, residual sums, stages, and the overall frame."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

__all__ = [
    "Network",
    "Residual",
    "blocks_per_stage",
    "convolution",
    "initialise",
    "padded_shortcut",
    "stages",
]

Block = Callable[[int, int, int], nn.Module]


class Network(nn.Module):
    """Stem, stages, head, global average pooling, linear classifier: the frame of every model here.

    Pooling is a mean over whatever image is left, so any input size works. The classifier is
    registered last: its tensors end `parameters()`, where vSAM looks.

    Arguments:
        stem: maps images to the first feature maps.
        stages: the body, usually made by `stages`.
        head: the layers between body and pooling, or an empty `nn.Sequential`.
        num_features: channels that the head returns.
        num_classes: number of logits, at least 1.
    """

    def __init__(
        self, stem: nn.Module, stages: nn.Module, head: nn.Module, num_features: int, num_classes: int
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = stages
        self.head = head
        self.classifier = nn.Linear(num_features, num_classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Logits `[batch, num_classes]` of images `[batch, channels, height, width]`."""
        features = self.head(self.stages(self.stem(images)))
        logits: Tensor = self.classifier(features.mean(dim=(2, 3)))
        return logits


class Residual(nn.Module):
    """Return `branch(x) + shortcut(x)`. An empty `nn.Sequential` as shortcut is the identity."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Add the outputs of the branch and the shortcut."""
        total: Tensor = self.branch(inputs) + self.shortcut(inputs)
        return total


def convolution(
    in_channels: int,
    out_channels: int,
    size: int,
    stride: int = 1,
    groups: int = 1,
) -> nn.Conv2d:
    """A `size × size` convolution (odd size) without bias that keeps the image size at stride 1."""
    return nn.Conv2d(in_channels, out_channels, size, stride, size // 2, groups=groups, bias=False)


def padded_shortcut(in_channels: int, out_channels: int, stride: int, window: int) -> nn.Sequential:
    """A parameter-free shortcut: shrink the image by `stride`, append zero channels.

    `window=1` takes every second pixel, `window=2` averages 2×2 pixels. Odd image sizes round up,
    as those of a 3×3 convolution with stride 2 do.
    """
    shrink = [nn.AvgPool2d(window, stride, ceil_mode=True)] if stride > 1 else []
    # On a batch of images the three padded dimensions are width, height and channels.
    widen = [nn.ZeroPad3d((0, 0, 0, 0, 0, out_channels - in_channels))] if out_channels > in_channels else []
    return nn.Sequential(*shrink, *widen)


def stages(block: Block, in_channels: int, widths: Sequence[Sequence[int]]) -> nn.Sequential:
    """One block per width. The first block of every stage but the first halves the image.

    Arguments:
        block: called as `block(in_channels, out_channels, stride)`.
        in_channels: channels that the stem returns.
        widths: for each stage, the output channels of its blocks.
    """
    result = nn.Sequential()
    for index, stage_widths in enumerate(widths):
        stage = nn.Sequential()
        for position, width in enumerate(stage_widths):
            stride = 2 if index > 0 and position == 0 else 1
            stage.append(block(in_channels, width, stride))
            in_channels = width
        result.append(stage)
    return result


def blocks_per_stage(depth: int, outside: int) -> int:
    """The `n` of `depth = 6n + outside`: three stages of `n` blocks with two layers each."""
    n, rest = divmod(depth - outside, 6)
    if n < 1 or rest:
        below = 6 * max(n, 1) + outside
        raise ValueError(
            f"depth must be 6n+{outside} with n at least 1 (three stages of n blocks with two layers each), "
            f"got {depth}. The nearest are {below} and {below + 6}."
        )
    return n


def initialise(network: nn.Module) -> None:
    """Kaiming normal by fan-out for convolutions, ones and zeros for BatchNorm, torch's default for Linear.

    A convolution's weights have the standard deviation `√(2 / (size² · out_channels / groups))`: the
    fan-out counts the outputs that an input really reaches. (`torch.nn.init.kaiming_normal_` ignores
    groups and would make depthwise weights `√groups` times too small.) All draws come from torch's global
    generator. What each paper does is noted with its network.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = math.prod(module.kernel_size) * module.out_channels // module.groups
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
