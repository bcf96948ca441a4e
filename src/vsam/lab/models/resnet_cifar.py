"""The CIFAR ResNets of He et al., depth 6n+2: ResNet-8 and ResNet-20 train on two cores."""

from torch import nn

from vsam.lab.models.layers import Network, blocks_per_stage, padded_shortcut, stages
from vsam.lab.models.resnet import basic_block, basic_stem

__all__ = ["ResNetCIFAR"]


class ResNetCIFAR(Network):
    """ResNet of depth 6n+2: three stages of `n` basic blocks with 16, 32 and 64 channels.

    Shortcuts have no parameters (option A, the paper's choice for CIFAR): between stages every second pixel
    is taken and the new channels are zeros. Convolutions start Kaiming normal by fan-out. The paper
    asks for He et al. (2015), which allows fan-in and fan-out.

    Arguments:
        depth: 6n+2 with n at least 1: 8, 14, 20, 32, 44, 56, 110, …
        num_classes: number of classes, at least 1.
        in_channels: channels of the images, at least 1.

    Cost, for 10 classes and a 3×32×32 image: depth 8 has 75,290 parameters and 12.2 M multiply-adds,
    depth 20 has 269,722 and 40.6 M.

    Example:
        >>> ResNetCIFAR(20)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Reference: He et al., Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2.
    """

    def __init__(self, depth: int, num_classes: int = 10, in_channels: int = 3) -> None:
        num_blocks = blocks_per_stage(depth, outside=2)
        body = stages(_padded_block, 16, [[width] * num_blocks for width in (16, 32, 64)])
        super().__init__(basic_stem(in_channels, 16), body, nn.Sequential(), 64, num_classes)


def _padded_block(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    shortcut = padded_shortcut(in_channels, out_channels, stride, window=1)
    return basic_block(in_channels, out_channels, stride, shortcut)
