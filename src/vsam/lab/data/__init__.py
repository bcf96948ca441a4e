"""The lab's data: in-memory datasets, and reproducible, augmented batches of them."""

import importlib
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vsam.lab.data.catalog import DEFAULT, Description, describe, load, names
from vsam.lab.errors import DataError
from vsam.lab.plugins import Function, register

if TYPE_CHECKING:
    from vsam.lab.data.augment import Augment
    from vsam.lab.data.batches import Batch, Batches
    from vsam.lab.data.dataset import Dataset
    from vsam.lab.data.validation import HELD_OUT, hold_out

__all__ = [
    "DEFAULT",
    "HELD_OUT",
    "Augment",
    "Batch",
    "Batches",
    "DataError",
    "Dataset",
    "Description",
    "describe",
    "hold_out",
    "load",
    "names",
]

_NEED_TORCH = {
    "Augment": "augment",
    "Batch": "batches",
    "Batches": "batches",
    "Dataset": "dataset",
    "HELD_OUT": "validation",
    "hold_out": "validation",
}


def __getattr__(name: str) -> Any:
    """Import what needs torch lazily, so that listing datasets is fast."""
    if name in _NEED_TORCH:
        return getattr(importlib.import_module(f"vsam.lab.data.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module 'vsam.lab.data' has no attribute {name!r}")


class _Room(types.ModuleType):
    """This package, which doubles as a decorator: `@vsam.lab.data("name")` adds a dataset of the user's own."""

    def __call__(self, name: str) -> Callable[[Function], Function]:
        """Decorate a function that returns a `Dataset`, or train images and labels and test images and labels."""
        return register("data", name)


sys.modules[__name__].__class__ = _Room
