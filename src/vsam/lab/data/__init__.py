"""The lab's data: data sets that sit in memory, and reproducible, augmented batches of them."""

from vsam.lab.data.augment import Augment
from vsam.lab.data.batches import Batch, Batches
from vsam.lab.data.catalog import DEFAULT, Description, describe, load, names
from vsam.lab.data.dataset import Dataset
from vsam.lab.data.errors import DataError
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
