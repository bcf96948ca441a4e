"""A quantized model on disk: integers and scales, and how many bytes they take."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vsam.quantize.layers import QuantizedLayer
from vsam.quantize.lsq import integer_codes, positive_step

__all__ = ["LayerSize", "SizeReport", "integer_weights", "size_report"]


@dataclass(frozen=True)
class LayerSize:
    """The sizes of one quantized layer; biases and the two step sizes count in full precision."""

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
    return {name: _integers(layer) for name, layer in _layers(model).items()}


def size_report(model: nn.Module) -> SizeReport:
    """Return the sizes in bytes, layer by layer and in total, in full precision and quantized.

    Example:
        >>> from vsam.quantize import quantize
        >>> model = quantize(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> size_report(model).full_bytes, size_report(model).quantized_bytes
        (780, 268)
    """
    layers = _layers(model)
    quantized = {id(tensor) for layer in layers.values() for tensor in _own(layer)}
    others = [tensor for tensor in (*model.parameters(), *model.buffers()) if id(tensor) not in quantized]
    return SizeReport(
        layers=tuple(_size(name, layer) for name, layer in layers.items()),
        rest_bytes=sum(_bytes(tensor) for tensor in others),
    )


def _layers(model: nn.Module) -> dict[str, QuantizedLayer]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLayer)}
    if not layers:
        raise ValueError("the model has no quantized layers: call quantize() first.")
    return layers


def _integers(layer: QuantizedLayer) -> tuple[Tensor, Tensor]:
    low, high = layer.weight_range
    codes = integer_codes(layer.weight, layer.weight_step, low, high)
    # float32 has no 2³¹ − 1, so the highest 32-bit code comes as 2³¹; as a float it is the same number again.
    integers = codes.to(torch.int64).clamp(low, high)
    return integers.to(torch.int8 if layer.weight_bits <= 8 else torch.int32), positive_step(layer.weight_step)


def _size(name: str, layer: QuantizedLayer) -> LayerSize:
    bias = layer.bias
    bias_bytes = _bytes(bias) if isinstance(bias, Tensor) else 0
    steps = _bytes(layer.weight_step) + _bytes(layer.activation_step)
    return LayerSize(
        name=name,
        weight_bits=layer.weight_bits,
        activation_bits=layer.activation_bits,
        num_weights=layer.weight.numel(),
        full_bytes=_bytes(layer.weight) + bias_bytes,
        quantized_bytes=math.ceil(layer.weight.numel() * layer.weight_bits / 8) + bias_bytes + steps,
    )


def _own(layer: QuantizedLayer) -> list[Tensor]:
    return [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
