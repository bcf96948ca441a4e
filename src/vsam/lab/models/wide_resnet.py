"""WideResNets: pre-activation residual networks with few, wide layers."""

from torch import nn

from vsam.lab.models.layers import Network, Residual, blocks_per_stage, convolution, stages

__all__ = ["WideResNet"]


class WideResNet(Network):
    """WRN-depth-width: three stages of `n` pre-activation blocks with 16, 32 and 64 times `width` channels.

    A block is `conv(relu(bn(conv(relu(bn(x))))))` plus its shortcut. Where the shape changes the shortcut
    is a 1×1 convolution of `relu(bn(x))` without BatchNorm of its own, else it is `x`. No dropout.
    Convolutions start Kaiming normal by fan-out. The authors' program took fan-out in some versions and
    fan-in in others, and starts the classifier's bias at zero, where we keep torch's default.

    WRN-28-10 is the standard one: (28 − 4) / 6 = 4 blocks per stage. The program released with the vSAM
    paper calls a network with 5 blocks per stage (46.16 M parameters, WRN-34-10 by this rule) by the same name.

    Arguments:
        depth: 6n+4 with n at least 1: 10, 16, 22, 28, 34, 40, …
        width: factor of the channels, at least 1.
        num_classes: number of classes, at least 1.
        in_channels: channels of the images, at least 1.

    Cost, for 10 classes and a 3×32×32 image: WRN-28-10 has 36,479,194 parameters and 5.2 G multiply-adds,
    WRN-16-2 has 691,674 and 101 M.

    Example:
        >>> WideResNet(16, 2)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Reference: Zagoruyko and Komodakis, Wide Residual Networks, BMVC 2016.
    """

    def __init__(self, depth: int, width: int, num_classes: int = 10, in_channels: int = 3) -> None:
        num_blocks = blocks_per_stage(depth, outside=4)
        if width < 1:
            raise ValueError(f"width, which multiplies the channels, must be at least 1, got {width}.")
        body = stages(_preactivation_block, 16, [[base * width] * num_blocks for base in (16, 32, 64)])
        num_features = 64 * width
        head = nn.Sequential(nn.BatchNorm2d(num_features), nn.ReLU())
        super().__init__(convolution(in_channels, 16, 3), body, head, num_features, num_classes)


def _preactivation_block(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    activate = [nn.BatchNorm2d(in_channels), nn.ReLU()]
    convolve = [
        convolution(in_channels, out_channels, 3, stride),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
        convolution(out_channels, out_channels, 3),
    ]
    if stride == 1 and in_channels == out_channels:
        return Residual(nn.Sequential(*activate, *convolve), nn.Sequential())
    shortcut = convolution(in_channels, out_channels, 1, stride)
    return nn.Sequential(*activate, Residual(nn.Sequential(*convolve), shortcut))
