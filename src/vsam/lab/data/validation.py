"""Validation split: a fifth of the training images is held out, and the test images are set aside."""

from dataclasses import replace

import torch

from vsam.lab.data.dataset import Dataset
from vsam.lab.errors import DataError

__all__ = ["HELD_OUT", "hold_out"]

HELD_OUT = 5
"""One in this many training images is held out."""


def hold_out(dataset: Dataset) -> Dataset:
    """A dataset that trains on four fifths of the training images and tests on the remaining fifth.

    Each class contributes its fraction. The choice is the same for all trials and seeds. Labels stay as they are:
    wrong ones that a recipe made are held out too, as they would be in practice. The dataset's own test images are not
    in the result, so nothing that uses it can look at them.
    """
    count = len(dataset.train_labels)
    if count < HELD_OUT:
        raise DataError(f"A search holds out a fifth of the training images, but {dataset.name} has only {count}.")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    by_class = order[dataset.train_labels.cpu()[order].argsort(stable=True)]
    is_held_out = torch.zeros(count, dtype=torch.bool)
    is_held_out[by_class[HELD_OUT - 1 :: HELD_OUT]] = True
    is_held_out = is_held_out.to(dataset.train_labels.device)
    return replace(
        dataset,
        name=f"{dataset.name}-validation",
        split="validation",
        num_available=dataset.num_available or count,
        train_images=dataset.train_images[~is_held_out],
        train_labels=dataset.train_labels[~is_held_out],
        test_images=dataset.train_images[is_held_out],
        test_labels=dataset.train_labels[is_held_out],
    )
