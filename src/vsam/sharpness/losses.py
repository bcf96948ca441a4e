"""The losses of all batches at one point, and how much higher they are at another."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vsam.sharpness.results import Estimate

__all__ = ["Losses"]


class Losses:
    """The losses of all batches at one point, with the batches' sizes; sums are over all ranks."""

    def __init__(self, losses: list[Tensor], sizes: list[int], total: Callable[[Tensor], Tensor]) -> None:
        self._losses = torch.stack(losses).double().cpu()
        self._sizes, self._total = torch.tensor(sizes, dtype=torch.float64), total
        sums = [float(self._sizes.sum()), float(self._losses @ self._sizes), len(sizes)]
        samples, loss, batches = total(torch.tensor(sums, dtype=torch.float64)).tolist()
        self.mean, self.num_samples, self.num_batches = loss / samples, int(samples), int(batches)

    def rise(self, after: "Losses", epsilon: float) -> Estimate:
        """How much higher the loss is there than here; the error is the standard error over batches.

        With a single batch it is the rounding error. The difference counts as converged if it exceeds rounding.
        """
        value, rounding = after.mean - self.mean, epsilon * (abs(after.mean) + abs(self.mean))
        error, kind = rounding, "rounding (one batch)"
        if self.num_batches > 1:
            squares = self._total(((after._losses - self._losses - value).square() @ self._sizes).reshape(1))
            error = max(rounding, math.sqrt(squares.item() / self.num_samples / (self.num_batches - 1)))
            kind = f"standard error over {self.num_batches} batches"
        return Estimate(value, error, math.isfinite(value) and abs(value) > rounding, kind)
