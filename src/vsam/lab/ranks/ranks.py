"""The processes of one run: each computes on its part of a batch, and all know the whole result."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from vsam.lab.data.batches import share
from vsam.lab.errors import DataError, RunError, UserError

__all__ = ["ALONE", "Ranks"]

Value = TypeVar("Value")


class Ranks:
    """The processes that train one run together, as one of them sees it.

    Args:
        rank: of this process, from 0.
        size: how many there are; with 1 nothing is ever sent. With more, torch's process group must be initialised.

    `stop_wanted` may be set at any time: `should_stop` is then true on all of them.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.stop_wanted = False
        # For numbers that stay on the CPU, whatever the gradients travel by.
        self._control: Any = distributed.new_group(backend="gloo") if size > 1 else None

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def gather(self, values: Tensor, count: int, start: int | None = None) -> Tensor:
        """The rows of all processes in their order, `count` in all; this one's begin at `start`.

        The gradient of whatever all processes compute of them alike flows back to this process's rows, times the number
        of processes, so that DDP's average over these is the sum that one process would have had.
        """
        if self.size == 1:
            return values
        first = share(count, self.rank, self.size).start if start is None else start
        gathered: Tensor = _Gather.apply(values, first, count, self.size)  # type: ignore[no-untyped-call]
        return gathered

    def own_part(self, keep: Tensor, count: int) -> tuple[Tensor, int]:
        """Of chosen places in a batch of `count`, in rising order: this process's own, and how many precede them.

        Those returned are counted from the beginning of this process's part.
        """
        if self.size == 1:
            return keep, 0
        part = share(count, self.rank, self.size)
        return keep[(keep >= part.start) & (keep < part.stop)] - part.start, int((keep < part.start).sum())

    def from_first(self, function: Callable[[], Value]) -> Value:
        """What the function returns in the first process, which alone calls it; an error of it is raised in all."""
        if self.size == 1:
            return function()
        outcome: list[Any] = [None, None]
        if self.is_first:
            try:
                outcome[0] = function()
            except Exception as error:
                kind = next((kind for kind in type(error).__mro__ if kind in (UserError, DataError)), RunError)
                distributed.broadcast_object_list([None, (kind, str(error))], src=0, group=self._control)
                raise
        distributed.broadcast_object_list(outcome, src=0, group=self._control)
        if outcome[1] is not None:
            kind, message = outcome[1]
            raise kind(message)
        value: Value = outcome[0]
        return value

    def should_stop(self) -> bool:
        """Whether one of the processes was asked to stop; each must ask at the same step."""
        return self.size > 1 and self._largest([float(self.stop_wanted)])[0] > 0

    def check_equal(self, tensors: Iterable[Tensor], what: str) -> None:
        """Fail in all processes where these tensors are not the same in each, to the bit."""
        if self.size == 1:
            return
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        numbers = [float(byte) for byte in digest.digest()[:8]]
        if self._largest(numbers) != [-number for number in self._largest([-number for number in numbers])]:
            raise RunError(
                f"The processes do not have the same {what} any more. A method or network of your own that draws from "
                "a global generator, or depends on the rank, cannot run on several: train it in one process."
            )

    def seed(self, *numbers: int) -> None:
        """Seed torch's generators by these numbers and the rank; the first process keeps its own."""
        if not self.is_first:
            digest = hashlib.sha256(repr((*numbers, self.rank)).encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "big", signed=True))

    def _largest(self, numbers: list[float]) -> list[float]:
        tensor = torch.tensor(numbers)
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX, group=self._control)
        return tensor.tolist()


class _Gather(torch.autograd.Function):
    """Rows of all processes: adding zeros is exact, and works for parts of any size."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, first: int, count: int, size: int) -> Tensor:
        ctx.rows, ctx.size = slice(first, first + len(values)), size
        gathered = values.new_zeros(count, *values.shape[1:])
        gathered[ctx.rows] = values
        distributed.all_reduce(gathered)
        return gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.size * gradients[0][ctx.rows], None, None, None


ALONE = Ranks()
