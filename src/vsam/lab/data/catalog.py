"""Datasets by name: load one, list them, say where they are or how to get them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vsam.lab import plugins
from vsam.lab.data.archive import find
from vsam.lab.data.cifar import CIFAR10, CIFAR100, Cifar, load_cifar
from vsam.lab.data.fashion import HOW_TO_GET, check_fashion, find_fashion, load_fashion, load_fashion_mini
from vsam.lab.data.sources import data_directory
from vsam.lab.errors import DataError, nearest

if TYPE_CHECKING:  # the list is made without torch
    from vsam.lab.data.dataset import Dataset

__all__ = ["DEFAULT", "LISTED", "Description", "describe", "load", "names"]

DEFAULT = "fashion-mini"
_CIFARS = {cifar.name: cifar for cifar in (CIFAR10, CIFAR100)}
LISTED = (DEFAULT, "fashion-mnist", *_CIFARS, "folder")
"""The datasets that vsam itself has."""


@dataclass(frozen=True)
class Description:
    """A row of the list of datasets. Entries that depend on the user's own images are `None`.

    `found` says where it is, `damage` what is wrong with it and what to do. At most one of them is set.
    """

    name: str
    num_classes: int | None
    num_train: int | None
    num_test: int | None
    image_shape: tuple[int, int, int] | None
    found: str | None
    how_to_get: str
    damage: str | None = None


def names() -> tuple[str, ...]:
    """The names that `load` knows, including the user's own. `folder` is written `folder:PATH`."""
    return (*LISTED, *(brought.name for brought in plugins.list_plugins("data")))


def load(
    name: str = DEFAULT,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    allow_download: bool = True,
    size: int | None = None,
    grey: bool | None = None,
) -> "Dataset":
    """Load a dataset into memory.

    Args:
        name: `fashion-mini` (in the package), `fashion-mnist`, `cifar10`, `cifar100`, `folder:PATH`, or the
            name of the user's own.
        data_dir: dataset directory, by default the environment variable VSAM_DATA, else the user's cache folder.
        allow_download: fetch what is missing (CIFAR only). Damaged files are never replaced.
        size: for `folder:PATH`, the side of the images in pixels (32).
        grey: for `folder:PATH`, one channel instead of three (false).

    Raises:
        DataError: the name is unknown, or files are missing or damaged. The message says what to do.

    Example:
        >>> load("fashion-mini")
        <Dataset fashion-mini: 4000 train, 1000 test, 10 classes, 1×28×28>
    """
    from vsam.lab.data.image_folder import load_folder
    from vsam.lab.data.plugin import load_plugin

    kind, separator, path = name.partition(":")
    if kind == "folder":
        if not path:
            raise DataError("folder needs a path: write folder:PATH, where PATH contains train/CLASS/ and test/CLASS/.")
        return load_folder(Path(path).expanduser(), size=32 if size is None else size, grey=bool(grey))
    if brought := plugins.find_plugin("data", name):
        return load_plugin(brought, data_dir, size=size, grey=grey)
    if separator or kind not in LISTED:
        raise DataError(f"There is no dataset {name!r}.{nearest(name, names())} Your own images are folder:PATH.")
    if size is not None or grey is not None:
        raise DataError(f"size and grey are for folder:PATH only: the images of {name} have a fixed shape.")
    root = data_directory(data_dir)
    try:
        if kind in _CIFARS:
            return load_cifar(_CIFARS[kind], root, allow_download=allow_download)
        return load_fashion(root) if kind == "fashion-mnist" else load_fashion_mini()
    except OSError as error:
        raise DataError(_unusable(root, error)) from error


def describe(data_dir: str | os.PathLike[str] | None = None) -> list[Description]:
    """All datasets with sizes, where each was found or what is damaged (a quick check), and how to get it."""
    root = data_directory(data_dir)
    return [
        Description(DEFAULT, 10, 4_000, 1_000, (1, 28, 28), "the package", "Ships with vsam."),
        _describe_fashion(root),
        *(_describe_cifar(cifar, root) for cifar in _CIFARS.values()),
        Description(
            "folder",
            None,
            None,
            None,
            None,
            None,
            "Your own images: --set data.name=folder:PATH, where PATH contains train/CLASS/ and test/CLASS/ "
            "(--set data.size=64 for larger images, --set data.grey=true for one channel).",
        ),
        *(
            Description(one.name, None, None, None, None, f"{one.summary} ({one.origin})", "Added by --use.")
            for one in plugins.list_plugins("data")
        ),
    ]


def _describe_fashion(root: Path) -> Description:
    found, damage = _look(root, _find_whole_fashion)
    return Description("fashion-mnist", 10, 60_000, 10_000, (1, 28, 28), found, HOW_TO_GET, damage)


def _describe_cifar(cifar: Cifar, root: Path) -> Description:
    found, damage = _look(root, lambda root: find(cifar.source, root))
    advice = f"Downloaded at first use into {root} from {cifar.source.url}."
    return Description(cifar.name, len(cifar.class_names), 50_000, 10_000, (3, 32, 32), found, advice, damage)


def _look(root: Path, find: Callable[[Path], Path | None]) -> tuple[str | None, str | None]:
    """Return the place of a dataset, and its problem. Each is None if it does not apply."""
    try:
        found = find(root)
    except DataError as error:
        return None, str(error)
    except OSError as error:
        return None, _unusable(root, error)
    return None if found is None else str(found), None


def _find_whole_fashion(root: Path) -> Path | None:
    folder = find_fashion(root)
    if folder is not None:
        check_fashion(folder)
    return folder


def _unusable(root: Path, error: OSError) -> str:
    return f"{error.filename or root} cannot be used: {error.strerror or error}. Choose another --data-dir."
