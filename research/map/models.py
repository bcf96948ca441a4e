"""The map's own networks."""

import torch
from torch import Tensor, nn
from torch.nn.init import trunc_normal_
from torch.nn.parameter import Parameter

from research.map import efficientnet
from research.map.sentences import MiniLM
from vsam.lab import models

__all__ = ["ViT", "build"]


class ViT(nn.Module):
    """Vision transformer for 32×32 images: patches of 4×4, 96 wide, 4 layers, 4 heads, mean over patches.

    Args:
        num_classes: number of classes.
        in_channels: channels of the images.
    """

    def __init__(self, num_classes: int, in_channels: int) -> None:
        super().__init__()
        width = 96
        self.patches = nn.Conv2d(in_channels, width, 4, stride=4)
        self.places = Parameter(trunc_normal_(torch.empty(1, 64, width), std=0.02))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 4, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        found: Tensor = self.head(self.body(self.patches(images).flatten(2).mT + self.places).mean(1))
        return found


def build(name: str, num_classes: int, in_channels: int) -> nn.Module:
    """Return a network by name. Weights that are not published are drawn from torch's generator."""
    match name:
        case "vit":
            return ViT(num_classes, in_channels)
        case "efficientnet-lite0":
            return efficientnet.pretrained(num_classes)
        case "minilm" | "minilm-lora":
            return MiniLM(num_classes, is_lora=name == "minilm-lora")
    return models.build(name, num_classes, in_channels)
