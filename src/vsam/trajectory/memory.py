"""The logits of every training example in the last epochs, for SAF."""

import logging
import math
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from vsam.checks import check_count

logger = logging.getLogger(__name__)


class LogitMemory(nn.Module):
    """A ring of `lag + 1` epochs of logits by example index.

    Each example's logits are stored with the epoch that wrote them, so logits of another epoch are never
    mistaken for those of `epoch − lag`: not after a resume in mid-epoch, not in a repeated epoch, not for an
    example that was left out. Of several writes of one example in one epoch only the first counts.

    Memory: examples × (lag + 1) × (classes + 1) × 4 bytes, all in `state_dict()`; logged at level INFO by the
    logger `vsam.trajectory.memory`. Raises an error if the device has less memory available.

    Args:
        num_examples: size of the training set, at least 1.
        num_classes: logits per example, at least 2.
        lag: how many epochs to look back, at least 1.
    """

    logits: Tensor
    epochs: Tensor

    def __init__(self, num_examples: int, num_classes: int, lag: int) -> None:
        super().__init__()
        num_examples = check_count("num_examples", num_examples, least=1, why="a training set has examples")
        num_classes = check_count("num_classes", num_classes, least=2, why="with one class there is nothing to learn")
        self.lag = lag = check_count("lag", lag, least=1, why="the memory looks back by whole epochs")
        needed = 4 * (lag + 1) * num_examples * (num_classes + 1)
        device = torch.empty(0).device
        _check_available(needed, device)
        self.register_buffer("logits", torch.zeros(lag + 1, num_examples, num_classes, dtype=torch.float32))
        self.register_buffer("epochs", torch.full((lag + 1, num_examples), -1, dtype=torch.int32))
        logger.info(
            f"SAF keeps the logits of {num_examples} examples over {lag + 1} epochs: {_mb(needed)} on {device}."
        )

    @property
    def memory_bytes(self) -> int:
        """The size of the memory in bytes."""
        return self.logits.nbytes + self.epochs.nbytes

    @torch.no_grad()
    def recall(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the logits of `epoch − lag`, and for each example whether there are any finite ones."""
        wanted = epoch - self.lag
        slot = wanted % (self.lag + 1)
        indices = indices.to(self.logits.device, torch.int64)
        old = self.logits[slot, indices]
        known = (self.epochs[slot, indices] == wanted) & old.isfinite().all(dim=1) & (wanted >= 0)
        return torch.where(known[:, None], old, 0.0), known

    @torch.no_grad()
    def record(self, logits: Tensor, indices: Tensor, epoch: int) -> None:
        """Record the logits of examples that have none from this epoch yet."""
        slot = epoch % (self.lag + 1)
        # Every copy of a repeated index writes the same row, so it does not matter which is last.
        new = logits.detach()[_first_of_equals(indices).to(logits.device)].to(self.logits)
        indices = indices.to(self.logits.device, torch.int64)
        written = self.epochs[slot, indices]
        self.logits[slot, indices] = torch.where((written == epoch)[:, None], self.logits[slot, indices], new)
        self.epochs[slot, indices] = torch.full_like(written, epoch)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        target = fn(self.logits.new_empty(0))
        if target.device != self.logits.device or target.element_size() > self.logits.element_size():
            _check_available(self.logits.numel() * target.element_size() + self.epochs.nbytes, target.device)
        moved: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved

    def extra_repr(self) -> str:
        """Return the settings as shown by `repr`."""
        slots, num_examples, num_classes = self.logits.shape
        return f"num_examples={num_examples}, num_classes={num_classes}, lag={slots - 1}"


def _first_of_equals(indices: Tensor) -> Tensor:
    """Return for each position of the batch the first position that holds the same example."""
    _, example = torch.unique(indices, return_inverse=True)
    positions = torch.arange(len(indices), device=indices.device)
    return positions.new_zeros(len(indices)).scatter_reduce_(0, example, positions, "amin", include_self=False)[example]


def _check_available(needed: int, device: torch.device) -> None:
    """Raise early: zeros are allocated lazily, so a run would be killed epochs later instead."""
    available = _available_bytes(device)
    if needed > available:
        raise RuntimeError(
            f"SAF's memory of logits needs {_mb(needed)}, but {device} has {_mb(available)} available: use a smaller "
            "lag, fewer examples or another device, or MESALoss, whose memory does not grow with the data."
        )


def _available_bytes(device: torch.device) -> float:
    """Return the bytes that can still be allocated, infinity if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "cpu":
        with suppress(OSError):  # there is no such file on other systems than Linux
            if found := re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text()):
                return 1024 * int(found[1])
    return math.inf


def _mb(num_bytes: float) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
