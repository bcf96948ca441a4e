"""The logits of every training example in the last epochs, which SAF compares with."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from vsam.errors import check_count

__all__ = ["LogitMemory"]

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
        _require_room(needed, device)
        self.register_buffer("logits", torch.zeros(lag + 1, num_examples, num_classes, dtype=torch.float32))
        self.register_buffer("epochs", torch.full((lag + 1, num_examples), -1, dtype=torch.int32))
        logger.info(
            "SAF keeps the logits of %d examples over %d epochs: %s on %s.",
            num_examples,
            lag + 1,
            _readable(needed),
            device,
        )

    @property
    def memory_bytes(self) -> int:
        """The size of the memory in bytes."""
        return sum(buffer.numel() * buffer.element_size() for buffer in (self.logits, self.epochs))

    @torch.no_grad()
    def recall(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the logits of `epoch − lag`, and for each example whether there are any finite ones."""
        wanted = epoch - self.lag
        slot = wanted % (self.lag + 1)
        indices = indices.to(self.logits.device, torch.int64)
        old = self.logits[slot, indices]
        known = (self.epochs[slot, indices] == wanted) & old.isfinite().all(dim=1)
        if wanted < 0:
            known = torch.zeros_like(known)
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
        is_wider = target.element_size() > self.logits.element_size()
        if target.device != self.logits.device or is_wider:
            _require_room(self.logits.numel() * target.element_size() + 4 * self.epochs.numel(), target.device)
        moved: Any = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Return the settings as shown by `repr`."""
        slots, num_examples, num_classes = self.logits.shape
        return f"num_examples={num_examples}, num_classes={num_classes}, lag={slots - 1}"


def _first_of_equals(indices: Tensor) -> Tensor:
    """For each position of the batch, the first position that holds the same example."""
    ordered, order = indices.sort(stable=True)
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    positions = torch.arange(len(order), device=order.device)
    group = torch.where(is_first, positions, 0).cummax(dim=0).values
    return torch.empty_like(order).scatter_(0, order, order[group])


def _require_room(needed: int, device: torch.device) -> None:
    """Raise early: zeros are allocated lazily, so a run would be killed epochs later instead."""
    available = _available_bytes(device)
    if available is not None and needed > available:
        raise RuntimeError(
            f"SAF's memory of logits needs {_readable(needed)}, "
            f"but {device} has {_readable(available)} available: use a smaller lag or fewer examples, "
            "keep the memory on another device, or use MESALoss, whose memory does not grow with the data."
        )


def _available_bytes(device: torch.device) -> int | None:
    """The bytes that can still be allocated, None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" in names and "SC_PAGE_SIZE" in names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _readable(num_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes / 1e3:.1f} kB"
