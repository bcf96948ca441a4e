"""An in-memory dataset: images as bytes, labels, class names and channel statistics."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch

from vsam.lab.errors import DataError

__all__ = ["Dataset", "channel_statistics"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Training and test images with their labels, all in memory.

    Args:
        name: the dataset's name in recipes and tables.
        train_images, test_images: `uint8`, shape (N, C, H, W), values 0 to 255.
        train_labels, test_labels: `int64`, shape (N,), each from 0 to `num_classes` − 1.
        class_names: one name per class, in label order.
        mean, std: one number per channel, of the training pixels scaled to [0, 1]. Computed if left out.
        split: what the test images are: `test`, or `validation` for held-out training images.
        num_available: training images of the complete dataset, if these are a subset.

    Cost: one byte per pixel value (CIFAR: 184 MB). `subset` and `noisy` share what they do not change.

    Example:
        >>> from vsam.lab.data import load
        >>> load("fashion-mini").subset(train=100, test=50).train_images.shape
        torch.Size([100, 1, 28, 28])
    """

    name: str
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    class_names: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    split: str = "test"
    num_available: int | None = None

    def __post_init__(self) -> None:
        _check_split(self, "train", self.train_images, self.train_labels)
        _check_split(self, "test", self.test_images, self.test_labels)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            shapes = f"{tuple(self.train_images.shape[1:])} and {tuple(self.test_images.shape[1:])}"
            raise DataError(f"{self.name}: train and test images must have the same shape, got {shapes}.")
        if not self.mean and not self.std:
            mean, std = channel_statistics(self.train_images)
            object.__setattr__(self, "mean", mean)
            object.__setattr__(self, "std", std)
        _check_statistics(self.name, self.image_shape[0], self.mean, self.std)

    @property
    def num_classes(self) -> int:
        """The number of classes, whether or not each has an image."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    def subset(self, *, train: int | None = None, test: int | None = None, seed: int = 0) -> Self:
        """Take `train` and `test` images, equally many per class (or one more). `None` takes all.

        Images keep their order. With the same seed, a smaller subset is contained in a larger one, and the choice of
        test images does not depend on `train`. Mean and std stay those of the complete dataset.

        Example:
            >>> from vsam.lab.data import load
            >>> load("fashion-mini").subset(train=20, seed=1).train_labels.bincount().tolist()
            [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
        """
        chosen = self
        if train is not None:
            keep = _balanced(self, "train", self.train_labels, train, seed)
            available = self.num_available or len(self.train_labels)
            train_images, train_labels = self.train_images[keep], self.train_labels[keep]
            chosen = replace(chosen, train_images=train_images, train_labels=train_labels, num_available=available)
        if test is not None:
            keep = _balanced(self, "test", self.test_labels, test, seed)
            chosen = replace(chosen, test_images=self.test_images[keep], test_labels=self.test_labels[keep])
        return chosen

    def held_out(self, *, train: int, test: int, seed: int = 0) -> Self:
        """Take `train` training images as `subset` does, and test on `test` other training images.

        For tuning where a subset leaves many training images unused: no run trains on fewer images, and the real test
        images are not in the result.

        Example:
            >>> from vsam.lab.data import load
            >>> load("fashion-mini").held_out(train=1000, test=500)
            <Dataset fashion-mini: 1000 train, 500 test, 10 classes, 1×28×28>
        """
        keep = _balanced(self, "train", self.train_labels, train, seed)
        both = _balanced(self, "train and held-out", self.train_labels, train + test, seed)
        others = both[~torch.isin(both, keep)]
        return replace(
            self.subset(train=train, seed=seed),
            test_images=self.train_images[others],
            test_labels=self.train_labels[others],
            split="validation",
        )

    def noisy(self, rate: float, seed: int = 0) -> Self:
        """Replace exactly `round(rate · N)` training labels with another class, drawn uniformly.

        Args:
            rate: fraction of wrong labels, from 0 to 1.
            seed: fixes which labels change and to what.

        Example:
            >>> from vsam.lab.data import load
            >>> clean = load("fashion-mini")
            >>> int((clean.noisy(0.2).train_labels != clean.train_labels).sum())
            800
        """
        if not 0 <= rate <= 1:
            raise DataError(f"rate must be from 0 to 1, got {rate}.")
        if self.num_classes < 2:
            raise DataError(f"{self.name} has only one class: there is no other class to change a label to.")
        generator = torch.Generator().manual_seed(seed)
        total = len(self.train_labels)
        changed = torch.randperm(total, generator=generator)[: round(rate * total)]
        shift = torch.randint(1, self.num_classes, (len(changed),), generator=generator)
        changed, shift = changed.to(self.train_labels.device), shift.to(self.train_labels.device)
        labels = self.train_labels.clone()
        labels[changed] = (labels[changed] + shift) % self.num_classes
        return replace(self, train_labels=labels)

    def to(self, device: torch.device | str) -> Self:
        """Move images and labels to `device`."""
        return replace(
            self,
            train_images=self.train_images.to(device),
            train_labels=self.train_labels.to(device),
            test_images=self.test_images.to(device),
            test_labels=self.test_labels.to(device),
        )

    def __repr__(self) -> str:
        shape = "×".join(str(size) for size in self.image_shape)
        counts = f"{len(self.train_labels)} train, {len(self.test_labels)} test"
        return f"<Dataset {self.name}: {counts}, {self.num_classes} classes, {shape}>"


def channel_statistics(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of `uint8` images (N, C, H, W), on the scale [0, 1].

    Counts the 256 values, so it is exact and the same on every machine. A constant channel gets std 1.
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    means: list[float] = []
    stds: list[float] = []
    for channel in images.unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256).double().cpu() / channel.numel()
        mean = float((share * values).sum())
        std = float((share * (values - mean).square()).sum().sqrt())
        means.append(mean)
        # Below one part in a million it is only rounding, which dividing by it would amplify.
        stds.append(std if std > 1e-6 else 1.0)
    return tuple(means), tuple(stds)


def _check_split(dataset: Dataset, split: str, images: torch.Tensor, labels: torch.Tensor) -> None:
    where = f"{dataset.name}: {split}"
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise DataError(f"{where} images must be uint8 (N, C, H, W), got {images.dtype} {tuple(images.shape)}.")
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        expected = f"int64 ({len(images)},)"
        raise DataError(f"{where} labels must be {expected}, got {labels.dtype} {tuple(labels.shape)}.")
    if not len(labels):
        raise DataError(f"{where} split must not be empty.")
    if labels.is_meta:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= dataset.num_classes:
        limit = dataset.num_classes - 1
        raise DataError(f"{where} labels must be from 0 to {limit}, got {low} to {high}.")


def _check_statistics(where: str, channels: int, mean: Sequence[float], std: Sequence[float]) -> None:
    if len(mean) != channels or len(std) != channels:
        raise DataError(f"{where}: images have {channels} channels, but mean has {len(mean)} and std {len(std)}.")
    if min(std) <= 0:
        raise DataError(f"std must be positive, got {tuple(std)}.")


def _balanced(dataset: Dataset, split: str, labels: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """Sorted indices of `count` images, equally many per class. The surplus goes to the first classes."""
    if not 1 <= count <= len(labels):
        raise DataError(f"{split} must be from 1 to {len(labels)} for {dataset.name}, got {count}.")
    generator = torch.Generator().manual_seed(seed)
    share, surplus = divmod(count, dataset.num_classes)
    chosen = []
    for index, name in enumerate(dataset.class_names):
        members = (labels.cpu() == index).nonzero().flatten()
        wanted = share + (index < surplus)
        if wanted > len(members):
            have = f"class {name!r} has {len(members)} of the {wanted} it needs"
            raise DataError(f"{split}={count} is too many for a balanced subset of {dataset.name}: {have}.")
        chosen.append(members[torch.randperm(len(members), generator=generator)[:wanted]])
    return torch.cat(chosen).sort().values.to(labels.device)
