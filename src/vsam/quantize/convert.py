"""Convert a full-precision model to a quantization-aware one."""

import copy
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from vsam.checks import check_not_negative
from vsam.quantize.layers import QuantConv2d, QuantizedLayer, QuantLinear, check_bits, quantized_layers

_QUANTIZED: dict[type[nn.Module], type[QuantizedLayer]] = {nn.Conv2d: QuantConv2d, nn.Linear: QuantLinear}


def quantize(
    model: nn.Module,
    weight_bits: int = 4,
    activation_bits: int = 4,
    first_last_bits: int = 8,
    *,
    signed_inputs: Collection[str] = (),
) -> nn.Module:
    """Return a copy of the model that trains with quantized weights and activations.

    Every `Conv2d` and `Linear` becomes a `QuantConv2d` or `QuantLinear` under the same name, with the
    parameters `weight_step` and `activation_step` besides its weight. Subclasses of the two stay as they
    are. First and last refer to the order of registration. The input of the first layer is signed, that of
    the others unsigned, as after a ReLU. Negative values there become zero, and a warning is logged on the
    first batch.

    Cost: no extra pass, the quantizers' elementwise work, and two numbers per layer.

    Args:
        model: the full-precision model, preferably trained. It is not changed.
        weight_bits: 2 to 32.
        activation_bits: 2 to 32, for the layers' inputs.
        first_last_bits: 2 to 32, for weights and inputs of the first and the last layer.
        signed_inputs: names of other layers whose inputs have negative values that matter. `*` matches
            any part of a name.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> quantize(model)[2]
        QuantLinear(in_features=16, out_features=16, bias=True, weight_bits=4, activation_bits=4 (unsigned))

    Reference: Esser, McKinstry, Bablani, Appuswamy, Modha, "Learned Step Size Quantization", ICLR 2020.
    """
    check_bits("weight_bits", weight_bits)
    check_bits("activation_bits", activation_bits)
    check_bits("first_last_bits", first_last_bits)
    copied = copy.deepcopy(model)
    if any(isinstance(module, QuantizedLayer) for module in copied.modules()):
        raise ValueError("the model is already quantized: quantize its full-precision original.")
    layers = {name: module for name, module in copied.named_modules() if type(module) in _QUANTIZED}
    if not layers:
        raise ValueError("the model has no Conv2d or Linear layers: there is nothing to quantize.")
    if unknown := [name for name in signed_inputs if not any(fnmatchcase(layer, name) for layer in layers)]:
        raise ValueError(f"signed_inputs names {sorted(unknown)}, but the layers are {list(layers)}.")
    first, last = next(iter(layers)), list(layers)[-1]
    for name, layer in layers.items():
        # In place, so that references to the layer stay valid: shared layers, tied weights, hooks.
        layer.__class__ = _QUANTIZED[type(layer)]
        assert isinstance(layer, QuantizedLayer)
        layer.name = name
        bits = (first_last_bits, first_last_bits) if name in (first, last) else (weight_bits, activation_bits)
        layer.start_quantizing(*bits, name == first or any(fnmatchcase(name, pattern) for pattern in signed_inputs))
    return copied


def parameter_groups(
    model: nn.Module, weight_decay: float = 1e-4, *, perturb_steps: bool = True
) -> list[dict[str, Any]]:
    """Return two groups for an optimizer: weights with weight decay, and step sizes without.

    Args:
        model: a model from `quantize`.
        weight_decay: for weights, biases and normalisation parameters, at least 0.
        perturb_steps: whether a sharpness-aware optimizer perturbs the step sizes too (`group["perturb"]`).

    Example:
        >>> from torch.optim import SGD
        >>> model = quantize(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))
        >>> base = SGD(parameter_groups(model), lr=0.01, momentum=0.9)
    """
    check_not_negative("weight_decay", weight_decay)
    steps = [step for layer in quantized_layers(model).values() for step in (layer.weight_step, layer.activation_step)]
    weights = [parameter for parameter in model.parameters() if parameter not in set(steps)]
    return [
        {"params": weights, "weight_decay": weight_decay},
        {"params": steps, "weight_decay": 0.0, "perturb": perturb_steps},
    ]
