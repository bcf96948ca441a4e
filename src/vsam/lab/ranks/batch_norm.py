"""BatchNorm over the whole batch when each process has only a part of it."""

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from vsam.lab.errors import UserError

__all__ = ["SyncedBatchNorm", "synchronise"]

_KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def synchronise(model: nn.Module, device: torch.device) -> nn.Module:
    """Make the model's BatchNorm layers normalise by statistics over all processes' images.

    On GPUs, this is torch's SyncBatchNorm, which does not support CPUs. There it is ours. Names, parameters and buffers
    stay the same.
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and type(module) not in (*_KINDS, nn.SyncBatchNorm):
            raise UserError(
                f"Layer {name!r} is a {type(module).__name__}, which would use the statistics of each process's own "
                "images. Use torch.nn.BatchNorm2d, or train in one process."
            )
    if device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return converted
    for module in model.modules():
        if type(module) in (*_KINDS, nn.SyncBatchNorm):
            module.__class__ = SyncedBatchNorm
    return model


class SyncedBatchNorm(_BatchNorm):
    """BatchNorm with mean and variance over all processes' inputs, whose parts may have any size, even 0.

    Cost: one all-reduce per pass and direction, of two numbers per channel.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}.")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise. In training, also update the running statistics."""
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or not distributed.is_initialized():
            return super().forward(input)
        mean, variance, count = _statistics(input)
        if self.training and self.running_mean is not None:
            self._follow(mean, variance * (count / (count - 1)))
        normalised: Tensor = _Normalise.apply(input, self.weight, self.bias, mean, variance, count, self.eps)  # type: ignore
        return normalised

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        factor = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        for running, value in ((self.running_mean, mean), (self.running_var, variance)):
            assert running is not None
            running.lerp_(value.to(running.dtype), factor)


@torch.no_grad()
def _statistics(input: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean and biased variance per channel over all processes, and the number of values per channel."""
    values = input.to(torch.promote_types(input.dtype, torch.float32))
    size = input.numel() // input.shape[1]
    num_channels = input.shape[1]
    parts = values.new_zeros(distributed.get_world_size(), 2 * num_channels + 1)
    if size:
        variance, mean = torch.var_mean(values, _others(input), correction=0)
        parts[distributed.get_rank()] = torch.cat([mean, variance, mean.new_tensor([size])])
    distributed.all_reduce(parts)
    means, variances, sizes = parts[:, :num_channels], parts[:, num_channels:-1], parts[:, -1:]
    count = float(sizes.sum())
    if count < 2:
        raise ValueError(f"Expected more than 1 value per channel when training, got {count:g} on all processes.")
    weights = sizes / count
    whole = (weights * means).sum(0)
    return whole, (weights * (variances + (means - whole) ** 2)).sum(0), count


class _Normalise(torch.autograd.Function):
    """`(x − mean) / √(variance + ε) · weight + bias`, with mean and variance over all processes' x."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: float,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(input, weight, mean, (variance + eps).rsqrt())
        ctx.count = count
        return F.batch_norm(input, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        input, weight, mean, inverse = ctx.saved_tensors
        shape = [1, -1] + [1] * (input.dim() - 2)
        gradient = gradients[0].to(mean.dtype)
        normalised = (input.to(mean.dtype) - mean.view(shape)) * inverse.view(shape)
        sums = torch.stack([gradient.sum(_others(input)), (gradient * normalised).sum(_others(input))])
        own = sums.clone()
        of_weight, of_bias = (own[i] if ctx.needs_input_grad[2 - i] else None for i in (1, 0))
        distributed.all_reduce(sums)
        means = (sums / ctx.count).view(2, *shape)
        scale = inverse if weight is None else inverse * weight
        of_input = (gradient - means[0] - normalised * means[1]) * scale.view(shape)
        return of_input.to(input.dtype), of_weight, of_bias, None, None, None, None


def _others(input: Tensor) -> list[int]:
    """All dimensions except the channels."""
    return [dimension for dimension in range(input.dim()) if dimension != 1]
