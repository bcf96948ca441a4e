"""The processes of one run: each computes on its part of a batch, and all get the complete result."""

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
    """The processes that train one run together, as seen from one of them.

    Args:
        rank: of this process, from 0.
        size: number of processes. With 1, nothing is sent. With more, torch's process group must be initialised.

    `stop_wanted` may be set at any time: `should_stop` is then true on all processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.stop_wanted = False
        # For numbers that stay on the CPU, whatever backend the gradients use.
        self._control: Any = distributed.new_group(backend="gloo") if size > 1 else None

    @property
    def is_first(self) -> bool:
        """True in the process that writes files and shows progress."""
        return self.rank == 0

    def gather(self, values: Tensor, count: int, start: int | None = None) -> Tensor:
        """The rows of all processes in order, `count` in total. This process's rows start at `start`.

        All processes must compute the same from them. Its gradient flows back to this process's rows, times the number
        of processes, so that DDP's average is the sum that a single process would have.
        """
        if self.size == 1:
            return values
        first = share(count, self.rank, self.size).start if start is None else start
        gathered: Tensor = _Gather.apply(values, first, count, self.size)  # type: ignore[no-untyped-call]
        return gathered

    def own_part(self, keep: Tensor, count: int) -> tuple[Tensor, int]:
        """Of the indices `keep` into a batch of `count`, ascending: this process's own, and how many precede them.

        The returned indices are relative to the start of this process's part.
        """
        if self.size == 1:
            return keep, 0
        part = share(count, self.rank, self.size)
        return keep[(keep >= part.start) & (keep < part.stop)] - part.start, int((keep < part.start).sum())

    def from_first(self, function: Callable[[], Value]) -> Value:
        """Call the function in the first process only, and return its result in all. Its error is raised in all."""
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
        """Return True if any process was asked to stop. All must call this at the same step."""
        return self.size > 1 and self._largest([float(self.stop_wanted)])[0] > 0

    def check_equal(self, tensors: Iterable[Tensor], what: str) -> None:
        """Raise in all processes unless these tensors are bitwise equal on all of them."""
        if self.size == 1:
            return
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        numbers = [float(byte) for byte in digest.digest()[:8]]
        if self._largest(numbers) != [-number for number in self._largest([-number for number in numbers])]:
            raise RunError(
                f"The processes no longer have the same {what}. A method or network of your own that draws from a "
                "global generator, or depends on the rank, cannot run on several: train it in one process."
            )

    def seed(self, *numbers: int) -> None:
        """Seed torch's generators from these numbers and the rank. The first process keeps its state."""
        if not self.is_first:
            digest = hashlib.sha256(repr((*numbers, self.rank)).encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "big", signed=True))

    def _largest(self, numbers: list[float]) -> list[float]:
        tensor = torch.tensor(numbers)
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX, group=self._control)
        return tensor.tolist()


class _Gather(torch.autograd.Function):
    """The rows of all processes, by an all-reduce of zero-padded parts: exact, and works for parts of any size."""

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
