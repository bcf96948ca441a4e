"""PyramidNets: residual networks that widen a little in every block."""

from torch import nn

from vsam.lab.models.layers import Network, Residual, blocks_per_stage, convolution, padded_shortcut, stages

__all__ = ["PyramidNet"]


class PyramidNet(Network):
    """PyramidNet of basic blocks: block `k` of `3n` has `round(16 + k·alpha / 3n)` channels.

    A block is `bn(conv(relu(bn(conv(bn(x))))))` plus its shortcut, which has no parameters: a 2×2 average
    pool between stages, and zeros for the new channels. No ReLU precedes a block's first convolution: its
    input has both signs. Convolutions start Kaiming normal by fan-out. This and the rounding of widths are
    as in the authors' program.

    Arguments:
        depth: 6n+2 with n at least 1. The usual one is 110.
        alpha: channels added from the first block to the last, at least 1. The usual one is 270.
        num_classes: number of classes, at least 1.
        in_channels: channels of the images, at least 1.

    Cost: depth 110 and alpha 270 have 28,485,477 parameters for 10 classes, 4.7 G multiply-adds for a
    3×32×32 image.

    Example:
        >>> PyramidNet(20, alpha=48)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Reference: Han, Kim and Kim, Deep Pyramidal Residual Networks, CVPR 2017.
    """

    def __init__(
        self,
        depth: int = 110,
        alpha: int = 270,
        num_classes: int = 10,
        in_channels: int = 3,
    ) -> None:
        num_blocks = blocks_per_stage(depth, outside=2)
        if alpha < 1:
            raise ValueError(f"alpha, the number of channels added, must be at least 1, got {alpha}.")
        widths = [round(16 + k * alpha / (3 * num_blocks)) for k in range(1, 3 * num_blocks + 1)]
        by_stage = [widths[start : start + num_blocks] for start in range(0, 3 * num_blocks, num_blocks)]
        stem = nn.Sequential(convolution(in_channels, 16, 3), nn.BatchNorm2d(16))
        head = nn.Sequential(nn.BatchNorm2d(widths[-1]), nn.ReLU())
        super().__init__(stem, stages(_pyramid_block, 16, by_stage), head, widths[-1], num_classes)


def _pyramid_block(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    branch = nn.Sequential(
        nn.BatchNorm2d(in_channels),
        convolution(in_channels, out_channels, 3, stride),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
        convolution(out_channels, out_channels, 3),
        nn.BatchNorm2d(out_channels),
    )
    return Residual(branch, padded_shortcut(in_channels, out_channels, stride, window=2))
