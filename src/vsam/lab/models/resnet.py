"""ResNet-18 in its CIFAR form, and the basic block that the smaller CIFAR ResNets share."""

from torch import nn

from vsam.lab.models.layers import Network, Residual, convolution, stages

__all__ = ["ResNet18", "basic_block", "basic_stem"]


class ResNet18(Network):
    """ResNet-18 for small images: a 3×3 stem with stride 1 and no max-pooling, 64-128-256-512 × 2 blocks.

    Where a block changes the shape its shortcut is a 1×1 convolution with BatchNorm (He et al.'s
    option B). Convolutions start Kaiming normal by fan-out. The paper asks for He et al. (2015), which allows
    fan-in and fan-out.

    Arguments:
        num_classes: number of classes, at least 1.
        in_channels: channels of the images, at least 1.

    Cost: 11,173,962 parameters for 10 classes, 0.56 G multiply-adds for a 3×32×32 image.

    Example:
        >>> ResNet18(num_classes=100)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])

    Reference: He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3) -> None:
        widths = [[width] * 2 for width in (64, 128, 256, 512)]
        body = stages(_projecting_block, 64, widths)
        super().__init__(basic_stem(in_channels, 64), body, nn.Sequential(), 512, num_classes)


def basic_stem(in_channels: int, out_channels: int) -> nn.Sequential:
    """A 3×3 convolution with BatchNorm and ReLU."""
    return nn.Sequential(convolution(in_channels, out_channels, 3), nn.BatchNorm2d(out_channels), nn.ReLU())


def basic_block(in_channels: int, out_channels: int, stride: int, shortcut: nn.Module) -> nn.Sequential:
    """He et al.'s basic block: `relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))`."""
    branch = nn.Sequential(
        convolution(in_channels, out_channels, 3, stride),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
        convolution(out_channels, out_channels, 3),
        nn.BatchNorm2d(out_channels),
    )
    return nn.Sequential(Residual(branch, shortcut), nn.ReLU())


def _projecting_block(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    shortcut = nn.Sequential()
    if stride > 1 or in_channels != out_channels:
        shortcut.append(convolution(in_channels, out_channels, 1, stride))
        shortcut.append(nn.BatchNorm2d(out_channels))
    return basic_block(in_channels, out_channels, stride, shortcut)
