"""Export a quantized model as integers and scales, and count its bytes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsam.quantize.layers import quantized_layers
from vsam.quantize.lsq import integer_codes, positive_step


@dataclass(frozen=True)
class LayerSize:
    """The sizes of one quantized layer. Biases and the two step sizes count in full precision."""

    name: str
    weight_bits: int
    activation_bits: int
    num_weights: int
    full_bytes: int
    quantized_bytes: int


@dataclass(frozen=True)
class SizeReport:
    """The sizes of a model: its quantized layers, and the rest (such as normalisation) in full precision."""

    layers: tuple[LayerSize, ...]
    rest_bytes: int

    @property
    def full_bytes(self) -> int:
        """The size in full precision."""
        return self.rest_bytes + sum(layer.full_bytes for layer in self.layers)

    @property
    def quantized_bytes(self) -> int:
        """The size with packed integers in place of weights."""
        return self.rest_bytes + sum(layer.quantized_bytes for layer in self.layers)


@torch.no_grad()
def integer_weights(model: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each quantized layer's weight as integers and their scale, by the layer's name.

    `integers · scale` is bit for bit the weight that the forward pass uses. The integers are int8 up to 8
    bits, else int32.

    Example:
        >>> from vsam.quantize import quantize
        >>> model = quantize(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> integers, scale = integer_weights(model)["0"]
    """
    found = {}
    for name, layer in quantized_layers(model).items():
        low, high = layer.weight_range
        codes = integer_codes(layer.weight, layer.weight_step, low, high)
        # float32 has no 2³¹ − 1, so the highest 32-bit code comes as 2³¹. As a float it is the same number again.
        integers = codes.to(torch.int64).clamp(low, high).to(torch.int8 if layer.weight_bits <= 8 else torch.int32)
        found[name] = integers, positive_step(layer.weight_step)
    return found


def size_report(model: nn.Module) -> SizeReport:
    """Return the sizes in bytes, layer by layer and in total, in full precision and quantized.

    Example:
        >>> from vsam.quantize import quantize
        >>> model = quantize(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> size_report(model).full_bytes, size_report(model).quantized_bytes
        (780, 268)
    """
    sizes, rest = [], {id(tensor): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    for name, layer in quantized_layers(model).items():
        weight, bias = layer.weight, layer.bias.nbytes if isinstance(layer.bias, Tensor) else 0
        steps = layer.weight_step.nbytes + layer.activation_step.nbytes
        packed = math.ceil(weight.numel() * layer.weight_bits / 8) + bias + steps
        bits = layer.weight_bits, layer.activation_bits
        sizes.append(LayerSize(name, *bits, weight.numel(), weight.nbytes + bias, packed))
        for tensor in (*layer.parameters(recurse=False), *layer.buffers(recurse=False)):
            rest.pop(id(tensor), None)
    return SizeReport(tuple(sizes), sum(rest.values()))
