"""Quantization-aware training with learned step sizes (LSQ)."""

from vsam.quantize.convert import parameter_groups, quantize
from vsam.quantize.export import LayerSize, SizeReport, integer_weights, size_report
from vsam.quantize.layers import QuantConv2d, QuantizedLayer, QuantLinear
from vsam.quantize.lsq import lsq

# fmt: off
__all__ = [
    "LayerSize", "QuantConv2d", "QuantLinear", "QuantizedLayer", "SizeReport", "integer_weights", "lsq",
    "parameter_groups", "quantize", "size_report",
]
# fmt: on
