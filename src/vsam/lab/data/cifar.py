"""CIFAR-10 and CIFAR-100 from the official binary files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vsam.lab.data.archive import obtain
from vsam.lab.data.sources import ArchiveSource, KnownFile

if TYPE_CHECKING:  # datasets are listed without torch
    import torch

    from vsam.lab.data.dataset import Dataset

__all__ = ["CIFAR10", "CIFAR100", "Cifar", "load_cifar"]

_SIDE = 32
_SITE = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True)
class Cifar:
    """Layout of one of the two datasets: the files of each split, and the number of label bytes before the pixels.

    The last label byte counts: CIFAR-100 writes the coarse label first and then the fine one, which is used.
    """

    name: str
    source: ArchiveSource
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int
    class_names: tuple[str, ...]


def load_cifar(cifar: Cifar, root: Path, *, allow_download: bool = True) -> "Dataset":
    """Read `cifar` from `root`, checking every file against its published size and checksum."""
    from vsam.lab.data.dataset import Dataset

    folder = obtain(cifar.source, root, allow_download=allow_download)
    train_images, train_labels = _read_split(cifar, folder, cifar.train)
    test_images, test_labels = _read_split(cifar, folder, cifar.test)
    return Dataset(cifar.name, train_images, train_labels, test_images, test_labels, cifar.class_names)


def _read_split(cifar: Cifar, folder: Path, names: tuple[str, ...]) -> "tuple[torch.Tensor, torch.Tensor]":
    import torch

    width = cifar.label_bytes + 3 * _SIDE * _SIDE
    records: list[npt.NDArray[np.uint8]] = []
    for name in names:
        records.append(np.frombuffer(cifar.source.read(folder, name), dtype=np.uint8).reshape(-1, width))
    images = np.concatenate([record[:, cifar.label_bytes :] for record in records])
    labels = np.concatenate([record[:, cifar.label_bytes - 1] for record in records])
    return torch.from_numpy(images).view(-1, 3, _SIDE, _SIDE), torch.from_numpy(labels).long()


_CLASSES10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CLASSES100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_TRAIN10 = tuple(f"data_batch_{number}.bin" for number in range(1, 6))

CIFAR10 = Cifar(
    name="cifar10",
    source=ArchiveSource(
        title="CIFAR-10",
        url=f"{_SITE}/cifar-10-binary.tar.gz",
        checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",
        folder="cifar-10-batches-bin",
        files=(
            KnownFile("data_batch_1.bin", 30_730_000, "md5:5dd7e06a14cb22eb9f671a540d1b7c25"),
            KnownFile("data_batch_2.bin", 30_730_000, "md5:5ea93a67294ea407fff1d09f752e9692"),
            KnownFile("data_batch_3.bin", 30_730_000, "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
            KnownFile("data_batch_4.bin", 30_730_000, "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
            KnownFile("data_batch_5.bin", 30_730_000, "md5:53f37980c15c3d472c316c40844f3f0d"),
            KnownFile("test_batch.bin", 30_730_000, "md5:803d5f7f4d78ea53de84dbe85f74fb6d"),
        ),
    ),
    train=_TRAIN10,
    test=("test_batch.bin",),
    label_bytes=1,
    class_names=tuple(_CLASSES10.split()),
)

CIFAR100 = Cifar(
    name="cifar100",
    source=ArchiveSource(
        title="CIFAR-100",
        url=f"{_SITE}/cifar-100-binary.tar.gz",
        checksum="md5:03b5dce01913d631647c71ecec9e9cb8",
        folder="cifar-100-binary",
        files=(
            KnownFile("train.bin", 153_700_000, "sha1:e207cd2e05b73b1393c74c7f5e7bea451d63e08e"),
            KnownFile("test.bin", 30_740_000, "sha1:8fb6623e830365ff53cf14adec797474f5478006"),
        ),
    ),
    train=("train.bin",),
    test=("test.bin",),
    label_bytes=2,
    class_names=tuple(_CLASSES100.split()),
)
