"""Fashion-MNIST: the small one that ships with the package, and the full one from its idx files."""

import gzip
import io
import zlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vsam.lab.data.sources import KnownFile, check_content, check_directory, exists
from vsam.lab.errors import DataError

if TYPE_CHECKING:  # datasets are listed without torch
    from vsam.lab.data.dataset import Dataset

__all__ = [
    "CLASS_NAMES",
    "FASHION",
    "HOW_TO_GET",
    "check_fashion",
    "find_fashion",
    "load_fashion",
    "load_fashion_mini",
]

_CLASSES = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
CLASS_NAMES = tuple(_CLASSES.split(", "))
_FOLDER = "fashion-mnist"
_IDX_BYTES = 0x08


FASHION = (
    KnownFile("train-images-idx3-ubyte", 47_040_016, "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a"),
    KnownFile("train-labels-idx1-ubyte", 60_008, "md5:9018921c3c673c538a1fc5bad174d6f9"),
    KnownFile("t10k-images-idx3-ubyte", 7_840_016, "md5:8181f5470baa50b63fa0f6fddb340f0a"),
    KnownFile("t10k-labels-idx1-ubyte", 10_008, "md5:15d484375f8d13e6eb1aabb0c3f46965"),
)
"""Training images and labels, then test images and labels. Sizes and checksums are of the *unpacked* content."""
_DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
HOW_TO_GET = (
    "Install Debian's package dataset-fashion-mnist, or put the four .gz files of "
    "https://github.com/zalandoresearch/fashion-mnist, packed or unpacked, into fashion-mnist/ in the data directory."
)
_REPLACE = f"Replace it with an intact one, or move the folder away. {HOW_TO_GET}"


def load_fashion_mini() -> "Dataset":
    """Load the 4,000 training and 1,000 test images in the package (MIT, Zalando SE: fashion_mini.NOTICE)."""
    content = resources.files("vsam.lab.data").joinpath("fashion_mini.npz").read_bytes()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        names = ("train_images", "train_labels", "test_images", "test_labels")
        return _dataset("fashion-mini", *(arrays[name] for name in names))


def find_fashion(root: Path) -> Path | None:
    """The first that exists of `root/fashion-mnist`, `root` itself if it has the files, and Debian's folder."""
    check_directory(root)
    if exists(root / _FOLDER):
        return root / _FOLDER
    if root.is_dir() and (root.absolute().name == _FOLDER or all(_candidates(root, file) for file in FASHION)):
        return root
    return _DEBIAN_FOLDER if _DEBIAN_FOLDER.is_dir() else None


def check_fashion(folder: Path, fashion: Sequence[KnownFile] = FASHION) -> None:
    """Raise `DataError` naming the first file that is missing. Contents are checked when they are read."""
    for file in fashion:
        _find_file(folder, file)


def load_fashion(root: Path, fashion: Sequence[KnownFile] = FASHION) -> "Dataset":
    """Read the full Fashion-MNIST (60,000 and 10,000 images), checked against the known checksums."""
    folder = find_fashion(root)
    if folder is None:
        raise DataError(f"Fashion-MNIST is not in {root / _FOLDER}. {HOW_TO_GET}")
    return _dataset("fashion-mnist", *(_read_idx(folder, file) for file in fashion))


def _dataset(name: str, *arrays: npt.NDArray[np.uint8]) -> "Dataset":
    import torch

    from vsam.lab.data.dataset import Dataset

    train_images, train_labels, test_images, test_labels = map(torch.from_numpy, arrays)
    images = train_images.unsqueeze(1), test_images.unsqueeze(1)
    return Dataset(name, images[0], train_labels.long(), images[1], test_labels.long(), CLASS_NAMES)


def _read_idx(folder: Path, file: KnownFile) -> npt.NDArray[np.uint8]:
    """The bytes of an idx file: two zeros, the type, the number of dimensions, the dimensions, the values."""
    path = _find_file(folder, file)
    content = _read(path, file)
    if content[:3] != bytes([0, 0, _IDX_BYTES]):
        raise DataError(f"{path} is not an idx file of bytes. {_REPLACE}")
    dimensions = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).tolist()
    values = np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions)
    return values.reshape(shape).copy()


def _candidates(folder: Path, file: KnownFile) -> list[Path]:
    """The existing forms of a file: packed, unpacked, or both."""
    return [path for path in (folder / f"{file.name}.gz", folder / file.name) if exists(path)]


def _find_file(folder: Path, file: KnownFile) -> Path:
    found = _candidates(folder, file)
    if not found:
        raise DataError(f"{folder} is incomplete: it has neither {file.name}.gz nor the unpacked file. {_REPLACE}")
    return found[0]


def _read(path: Path, file: KnownFile) -> bytes:
    if not path.is_file():
        raise DataError(f"{path} is not a regular file. {_REPLACE}")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as opened:
            content = opened.read(file.size + 1)  # a small file may unpack to more than fits in memory
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}. {_REPLACE}") from error
    check_content(path, content, file, _REPLACE)
    return content
