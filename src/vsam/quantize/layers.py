"""Layers that compute with quantized weights and inputs, and learn the step sizes of both."""

import logging
import math
from typing import Any

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn

from vsam.checks import check_count
from vsam.quantize.lsq import lsq

logger = logging.getLogger(__name__)


class QuantizedLayer(nn.Module):
    """Base of the quantized layers, with two step sizes, the ranges of their integers, and the first batch.

    Weights are signed, −2^(b−1) … 2^(b−1)−1; inputs are unsigned, 0 … 2^b−1, as after a ReLU, or signed. A
    step size starts at `2 · mean|v| / √Qp`: for the weights at construction, for the input once, on the
    first batch in training mode (over all processes of a distributed run). The buffer `initialised` is
    saved with the rest. Evaluating before that raises an error. The gradient of a step size is scaled by
    `1/√(numel · Qp)`, for inputs with the numel of one sample.

    Args:
        *args: as for the full-precision layer.
        weight_bits: 2 to 32.
        activation_bits: 2 to 32, for the layer's input.
        signed_input: whether the input may be negative.
        **kwargs: as for the full-precision layer.
    """

    name: str = ""
    """The layer's name in the model, for messages."""

    weight: Tensor
    _unbatched_dims: int
    initialised: Tensor

    def __init__(
        self, *args: Any, weight_bits: int = 4, activation_bits: int = 4, signed_input: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.start_quantizing(weight_bits, activation_bits, signed_input)

    @torch.no_grad()
    def start_quantizing(self, weight_bits: int, activation_bits: int, signed_input: bool) -> None:
        """Set the ranges, and add both step sizes."""
        self.weight_bits = check_bits("weight_bits", weight_bits)
        self.activation_bits = check_bits("activation_bits", activation_bits)
        self.signed_input = signed_input
        self.weight_step = nn.Parameter(_initial_step(_mean_size(self.weight), self.weight_range[1]))
        self.activation_step = nn.Parameter(torch.ones_like(self.weight_step))
        self.register_buffer("initialised", torch.zeros_like(self.weight_step, dtype=torch.bool))
        self._is_initialised = False

    @property
    def weight_range(self) -> tuple[int, int]:
        """The lowest and the highest integer of a weight."""
        return _signed_range(self.weight_bits)

    @property
    def activation_range(self) -> tuple[int, int]:
        """The lowest and the highest integer of an input."""
        return _signed_range(self.activation_bits) if self.signed_input else (0, 2**self.activation_bits - 1)

    def quantized_weight(self) -> Tensor:
        """Return the weight as the layer uses it: integers times the step size."""
        low, high = self.weight_range
        return lsq(self.weight, self.weight_step, low, high, 1 / math.sqrt(self.weight.numel() * high))

    def quantized_input(self, inputs: Tensor) -> Tensor:
        """Return the input as the layer uses it. The first batch in training mode sets the step size."""
        if not self.has_step() and not self._initialise(inputs):
            return inputs
        low, high = self.activation_range
        sample = inputs.shape[1:] if inputs.dim() > self._unbatched_dims else inputs.shape
        return lsq(inputs, self.activation_step, low, high, 1 / math.sqrt(max(1, math.prod(sample)) * high))

    def has_step(self) -> bool:
        """Return whether the input's step size has been set."""
        # Read from the buffer until it is True, then never again: reading it costs a device sync.
        if not self._is_initialised:
            self._is_initialised = bool(self.initialised)
        return self._is_initialised

    def extra_repr(self) -> str:
        """Return the settings as shown by `repr`."""
        sign = "signed" if self.signed_input else "unsigned"
        bits = f"weight_bits={self.weight_bits}, activation_bits={self.activation_bits} ({sign})"
        return f"{super().extra_repr()}, {bits}"

    @torch.no_grad()
    def _initialise(self, inputs: Tensor) -> bool:
        """Set the input's step size from a batch, and return False if that is empty or not finite."""
        if not self.training:
            raise RuntimeError(f"{self} has no step size for its input yet. Train for one step or load a state dict.")
        size = _mean_size(inputs)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            count = inputs.numel()  # zero, and no mean, on a process without a sample
            total = torch.stack([size * count if count else torch.zeros_like(size), torch.full_like(size, count)])
            torch.distributed.all_reduce(total)
            size = total[0] / total[1]
        if not bool(size.isfinite()):
            return False
        if not self.signed_input and (fraction := float((inputs < 0).float().mean())) > 0:
            logger.warning(
                f"{self.name or self}: {100 * fraction:.1f} % of its input is negative, which an unsigned quantizer "
                "sets to 0. Unless that is intended, pass the layer's name in `signed_inputs` of quantize()."
            )
        self.activation_step.copy_(_initial_step(size, self.activation_range[1]))
        self.initialised.fill_(True)
        return True

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._is_initialised = False


class QuantConv2d(QuantizedLayer, nn.Conv2d):
    """A two-dimensional convolution, grouped and depthwise ones included, with quantized weight and input."""

    _unbatched_dims = 3

    def forward(self, input: Tensor) -> Tensor:
        """Convolve the quantized input with the quantized weight."""
        convolved: Tensor = self._conv_forward(self.quantized_input(input), self.quantized_weight(), self.bias)
        return convolved


class QuantLinear(QuantizedLayer, nn.Linear):
    """A linear layer with quantized weight and input."""

    _unbatched_dims = 1

    def forward(self, input: Tensor) -> Tensor:
        """Multiply the quantized input with the quantized weight."""
        return F.linear(self.quantized_input(input), self.quantized_weight(), self.bias)


def quantized_layers(model: nn.Module) -> dict[str, QuantizedLayer]:
    """Return the quantized layers by name, of which there must be one."""
    layers = {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLayer)}
    if not layers:
        raise ValueError("the model has no quantized layers: call quantize() first.")
    return layers


def check_bits(name: str, bits: int) -> int:
    """Return `bits` if it is an integer from 2 to 32."""
    return check_count(name, bits, least=2, most=32, why="one bit has no positive level")


def _signed_range(bits: int) -> tuple[int, int]:
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _mean_size(values: Tensor) -> Tensor:
    return values.detach().to(torch.promote_types(values.dtype, torch.float32)).abs().mean()


def _initial_step(mean_size: Tensor, high: int) -> Tensor:
    """Return `2 · mean|v| / √Qp`, or a range of about −1 … 1 if all values are zero."""
    return torch.where(mean_size > 0, 2 * mean_size / math.sqrt(high), 1 / high)
