"""The lab's data: data sets that sit in memory, and reproducible, augmented batches of them."""

from vsam.lab.data.augment import Augment
from vsam.lab.data.batches import Batch, Batches
from vsam.lab.data.catalog import DEFAULT, Description, describe, load, names
from vsam.lab.data.dataset import Dataset
from vsam.lab.data.errors import DataError

__all__ = [
    "DEFAULT",
    "Augment",
    "Batch",
    "Batches",
    "DataError",
    "Dataset",
    "Description",
    "describe",
    "load",
    "names",
]
