"""Batches that are reproducible from three numbers: seed, epoch and start."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import torch

from vsam.lab.data.augment import Augment, normalise
from vsam.lab.data.dataset import Dataset
from vsam.lab.errors import DataError

__all__ = ["Batch", "Batches", "share"]

_USUAL: Augment | None = Augment()


class Batch(NamedTuple):
    """Normalised images, their labels, and their indices in the dataset (SAF's memory needs them).

    With several processes, each has its own images, and the labels and indices of all.
    """

    images: torch.Tensor
    labels: torch.Tensor
    indices: torch.Tensor


class Batches:
    """Cut a split into batches. Order and augmentation are a function of (seed, epoch) alone.

    All random numbers of an epoch come from one private CPU generator and are drawn at once, so an epoch can
    be entered at any batch, results do not depend on the device, and global generators are not touched.
    The last batch may be smaller (50,000 at 128 gives 391 batches).

    Args:
        images: `uint8` (N, C, H, W), on the device where the work is done.
        labels: `int64` (N,), on the same device.
        mean, std: one number per channel.
        batch_size: at least 1.
        shuffle: use a new order every epoch.
        augment: augmentation besides normalising, or `None`.
        seed: for order and augmentation.
        channels_last: return images in that memory format.
        rank, size: this process's index among several, and their number: it gets its part of each batch.

    Example:
        >>> from vsam.lab.data import Batches, load
        >>> batches = Batches.train(load("fashion-mini"), batch_size=128, seed=0)
        >>> len(batches)
        32
        >>> images, labels, indices = next(batches.epoch(3, start=10))
        >>> images.shape
        torch.Size([128, 1, 28, 28])
    """

    def __init__(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        batch_size: int,
        shuffle: bool = False,
        augment: Augment | None = None,
        seed: int = 0,
        channels_last: bool = False,
        rank: int = 0,
        size: int = 1,
    ) -> None:
        if batch_size < 1:
            raise DataError(f"batch_size must be at least 1, got {batch_size}.")
        self.images, self.labels = images, labels
        self.mean, self.std = tuple(mean), tuple(std)
        self.batch_size, self.shuffle, self.augment = batch_size, shuffle, augment
        self.seed, self.channels_last = seed, channels_last
        self.rank, self.size = rank, size

    @classmethod
    def train(
        cls, dataset: Dataset, *, batch_size: int = 128, augment: Augment | None = _USUAL, **options: Any
    ) -> Self:
        """Shuffled, augmented batches of the training split. `options` are those of the class."""
        options |= {"mean": dataset.mean, "std": dataset.std, "shuffle": True, "augment": augment}
        return cls(dataset.train_images, dataset.train_labels, batch_size=batch_size, **options)

    @classmethod
    def test(cls, dataset: Dataset, *, batch_size: int = 512, **options: Any) -> Self:
        """Batches of the test split, in order and normalised only."""
        options |= {"mean": dataset.mean, "std": dataset.std}
        return cls(dataset.test_images, dataset.test_labels, batch_size=batch_size, **options)

    def __len__(self) -> int:
        return -(-len(self.images) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        if self.shuffle or self.augment:
            raise TypeError("Random batches need the epoch's number: iterate over batches.epoch(number).")
        return self.epoch(0)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of epoch `epoch` (from 0) starting at batch `start`, the same as without skipping."""
        if epoch < 0:
            raise DataError(f"epoch must not be negative, got {epoch}.")
        if not 0 <= start <= len(self):
            raise DataError(f"start must be from 0 to {len(self)}, the number of batches, got {start}.")
        return self._generate(epoch, start)

    def _generate(self, epoch: int, start: int) -> Iterator[Batch]:
        count, device = len(self.images), self.images.device
        generator = _generator(self.seed, epoch)
        # Drawn whether or not it is used: augmentation does not change with `shuffle`.
        order = torch.randperm(count, generator=generator)
        if not self.shuffle:
            order = torch.arange(count)
        height, width = self.images.shape[2:]
        draws = self.augment and self.augment.draw(count, height, width, generator)
        for first in range(start * self.batch_size, count, self.batch_size):
            stop = min(first + self.batch_size, count)
            indices = order[first:stop].to(device)
            own = share(stop - first, self.rank, self.size)
            images = self.images.index_select(0, indices[own])
            if self.augment and draws:
                chosen = draws.batch(first + own.start, first + own.stop, device)
                images = self.augment(images, chosen, self.mean, self.std)
            else:
                images = normalise(images, self.mean, self.std)
            if self.channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            yield Batch(images, self.labels.index_select(0, indices), indices)


def share(count: int, rank: int, size: int) -> slice:
    """The part of `count` items for one of `size` processes. Parts differ by at most one.

    Example:
        >>> [share(5, rank, 2) for rank in range(2)]
        [slice(0, 2, None), slice(2, 5, None)]
    """
    return slice(count * rank // size, count * (rank + 1) // size)


def _generator(seed: int, epoch: int) -> torch.Generator:
    """A separate generator per pair: hashed, so that (0, 1) and (1, 0) are unrelated."""
    digest = hashlib.sha256(f"{seed} {epoch}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
