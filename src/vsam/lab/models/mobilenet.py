"""MobileNetV1 for small images."""

from torch import nn

from vsam.lab.models.layers import Network, convolution, stages
from vsam.lab.models.resnet import basic_stem

__all__ = ["MobileNet"]


class MobileNet(Network):
    """MobileNetV1 with a stride-1 stem: thirteen depthwise separable blocks from 64 to 1024 channels.

    A block is a depthwise 3×3 convolution and a 1×1 convolution across channels, each with
    BatchNorm and ReLU. The stem keeps the image size, so that a 32×32 image ends as 2×2 and not as 1×1.
    Convolutions start Kaiming normal by fan-out. The paper names no initialisation.

    Arguments:
        num_classes: number of classes, at least 1.
        in_channels: channels of the images, at least 1.
        width: the published width multiplier in percent, from 1: 25 leaves a quarter of the channels, at least 8.

    Cost: 3,217,226 parameters for 10 classes, 46 M multiply-adds for a 3×32×32 image.

    Example:
        >>> MobileNet()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Reference: Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
    Applications, 2017.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 100) -> None:
        if width < 1:
            raise ValueError(f"width must be at least 1 percent, got {width}.")
        stem, *full = (max(8, channels * width // 100) for channels in (32, 64, 128, 256, 512, 1024))
        widths = [[channels] * count for channels, count in zip(full, (1, 2, 2, 6, 2), strict=True)]
        super().__init__(
            basic_stem(in_channels, stem),
            stages(_separable_block, stem, widths),
            nn.Sequential(),
            full[-1],
            num_classes,
        )


def _separable_block(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    return nn.Sequential(
        convolution(in_channels, in_channels, 3, stride, groups=in_channels),
        nn.BatchNorm2d(in_channels),
        nn.ReLU(),
        convolution(in_channels, out_channels, 1),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )
