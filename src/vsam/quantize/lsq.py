"""The quantizer of LSQ as a differentiable function of the values and of the step size."""

from typing import Any

import torch
from torch import Tensor

SMALLEST_STEP = 1e-12


def lsq(values: Tensor, step: Tensor, low: int, high: int, scale: float = 1.0) -> Tensor:
    """Round `values` to multiples of `step` from `low` to `high`: `v̂ = s · round(clip(v/s, Qn, Qp))`.

    The gradient is the straight-through estimator: rounding counts as adding a constant. With v/s inside
    [Qn, Qp], ends included, `dv̂/dv = 1` and `dv̂/ds = round(v/s) − v/s`. Below, `dv̂/dv = 0` and
    `dv̂/ds = Qn`. Above, they are 0 and Qp. Second derivatives are zero, as for that surrogate.

    The effective step is `max(|s|, 1e-12)`: never zero or negative, wherever an optimizer or a perturbation
    has pushed `s`. A step that was pushed through zero thus acts like its mirror image, instead of
    silencing the layer as a floor would. Its gradient carries the sign of `s` (+1 at zero), so it never
    gets stuck.

    Computed in float32 or wider, returned in the dtype of `values`. Saves only its inputs for the backward
    pass.

    Args:
        values: floating-point numbers to quantize.
        step: s, broadcastable to the shape of `values`, usually a single number.
        low: Qn, the lowest integer.
        high: Qp > Qn, the highest integer.
        scale: multiplies the gradient of `step`. LSQ takes `1/√(numel · Qp)`.

    Example:
        >>> lsq(torch.tensor([-9.0, 0.2, 0.3, 2.0]), torch.tensor(0.5), low=-8, high=7)
        tensor([-4.0000,  0.0000,  0.5000,  2.0000])

    Reference: Esser, McKinstry, Bablani, Appuswamy, Modha, "Learned Step Size Quantization", ICLR 2020.
    """
    if low >= high:
        raise ValueError(f"low must be below high, got {low} and {high}.")
    if not values.is_floating_point():
        raise ValueError(f"values must be floating point, got {values.dtype}: integers are already quantized.")
    quantized = _Quantizer.apply(values, step, low, high, scale)  # type: ignore[no-untyped-call]
    assert isinstance(quantized, Tensor)
    return quantized


def positive_step(step: Tensor) -> Tensor:
    """Return the effective step size, `max(|s|, 1e-12)`, in float32 or wider."""
    return step.to(torch.promote_types(step.dtype, torch.float32)).abs().clamp_min(SMALLEST_STEP)


def integer_codes(values: Tensor, step: Tensor, low: int, high: int) -> Tensor:
    """Return `round(clip(v/s, Qn, Qp))`: integers, still in floating point."""
    return _ratio(values, step).clamp(low, high).round_()


def _ratio(values: Tensor, step: Tensor) -> Tensor:
    size = positive_step(step)
    return values.to(torch.promote_types(values.dtype, size.dtype)) / size


class _Quantizer(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, step: Tensor, low: int, high: int, scale: float) -> Tensor:
        return integer_codes(values, step, low, high).mul_(positive_step(step)).to(values.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        values, step, ctx.low, ctx.high, ctx.scale = inputs
        ctx.save_for_backward(values, step)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        values, step = ctx.saved_tensors
        # Constants of the surrogate, also if the backward pass is differentiated again.
        with torch.no_grad():
            ratio = _ratio(values, step)
            clipped = ratio.clamp(ctx.low, ctx.high)
            is_inside = clipped == ratio
            slope = clipped.round_() - torch.where(is_inside, ratio, 0.0)
            sign = torch.where(step < 0, -1.0, 1.0)
        of_values = of_step = None
        if ctx.needs_input_grad[0]:
            of_values = torch.where(is_inside, gradient, 0.0)
        if ctx.needs_input_grad[1]:
            summed = (gradient.to(ratio.dtype) * slope).sum_to_size(step.shape)
            of_step = (ctx.scale * sign * summed).to(step.dtype)
        return of_values, of_step, None, None, None
