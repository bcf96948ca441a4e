"""A user's own images: `DIR/train/CLASS/*.png` and `DIR/test/CLASS/*.png`."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageOps

from vsam.lab.data.dataset import Dataset
from vsam.lab.errors import DataError

__all__ = ["load_folder"]

_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
# Pillow goes by content, not by name: these decoders start no other program, unlike Ghostscript for EPS.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")


def load_folder(path: Path, *, size: int = 32, grey: bool = False) -> Dataset:
    """Read every image below `path`, one folder per class, and resize it to `size` × `size`.

    Classes are the folder names in alphabetical order and must be the same in `train` and `test`. The aspect
    ratio is not kept. Hidden files and those without an image extension are ignored.

    Args:
        path: the folder that contains `train` and `test`.
        size: side of the images in pixels, at least 1.
        grey: one channel instead of red, green and blue.
    """
    if size < 1:
        raise DataError(f"size must be at least 1, got {size}.")
    if not path.is_dir():
        raise DataError(f"{path} is not a folder. It should contain train/CLASS/ and test/CLASS/ with images.")
    class_names = _class_names(path / "train")
    _check_same_classes(path, class_names, _class_names(path / "test"))
    train_images, train_labels = _read_split(path / "train", class_names, size, grey)
    test_images, test_labels = _read_split(path / "test", class_names, size, grey)
    name = path.resolve().name
    return Dataset(name, train_images, train_labels, test_images, test_labels, class_names)


def _class_names(split: Path) -> tuple[str, ...]:
    if not split.is_dir():
        raise DataError(f"{split} is missing. Put images into train/CLASS/ and test/CLASS/.")
    names = tuple(sorted(entry.name for entry in split.iterdir() if entry.is_dir() and _is_visible(entry)))
    if not names:
        raise DataError(f"{split} has no classes. Put the images of each class into their own subfolder.")
    return names


def _check_same_classes(path: Path, train: tuple[str, ...], test: tuple[str, ...]) -> None:
    for present, absent, split in ((train, test, "test"), (test, train, "train")):
        lacking = sorted(set(present) - set(absent))
        if lacking:
            names = ", ".join(repr(name) for name in lacking)
            raise DataError(f"{path / split} lacks the class {names}: train and test must have the same classes.")


def _read_split(split: Path, class_names: tuple[str, ...], size: int, grey: bool) -> tuple[torch.Tensor, torch.Tensor]:
    images: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for label, name in enumerate(class_names):
        paths = sorted(path for path in (split / name).iterdir() if _is_image(path))
        if not paths:
            kinds = ", ".join(sorted(_SUFFIXES))
            raise DataError(f"{split / name} has no images ({kinds}). Add some, or remove the class.")
        images += [_read_image(path, size, grey) for path in paths]
        labels += [label] * len(paths)
    pixels = torch.from_numpy(np.stack(images)).view(len(images), size, size, -1)
    return pixels.permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)


def _read_image(path: Path, size: int, grey: bool) -> npt.NDArray[np.uint8]:
    try:
        with Image.open(path, formats=_FORMATS) as opened:
            # Cameras record rotation as metadata, not in the pixels.
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith(("I", "F")):
                raise DataError(f"{path} has more than 8 bits per channel ({image.mode}). Convert it to 8 bits.")
            image = image.convert("L" if grey else "RGB")
            if image.size != (size, size):
                image = image.resize((size, size), Image.Resampling.BILINEAR)
            return np.array(image, dtype=np.uint8)
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as an image: {error}. Repair or remove it.") from error


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and _is_visible(path) and path.is_file()


def _is_visible(path: Path) -> bool:
    return not path.name.startswith(".")
