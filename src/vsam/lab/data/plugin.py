"""The user's own datasets: their functions, and what these may return."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from vsam._step.replay import RngState
from vsam.lab.data.dataset import Dataset
from vsam.lab.errors import DataError
from vsam.lab.plugins import Plugin, call

__all__ = ["load_plugin"]


def load_plugin(own: Plugin, data_dir: str | os.PathLike[str] | None, **options: Any) -> Dataset:
    """Load the user's data: a `Dataset`, or training images and labels and test images and labels.

    What it draws from the global generators is the same in every run, process and resumed run.

    Args:
        own: the function. It receives those of `data_dir`, `size` and `grey` that it declares.
        data_dir: dataset directory, if the user gave one.
        options: `size` and `grey` of the recipe, None if not set.
    """
    given = {name: value for name, value in options.items() if value is not None}
    with _same_draws():
        made = call(own, {"data_dir": data_dir, **given})
    if isinstance(made, Dataset):
        return replace(made, name=own.name)
    if not isinstance(made, tuple | list) or len(made) != 4:
        raise DataError(
            f"Data {own.name!r} of {own.origin} must return a vsam.lab.data.Dataset, or train images, train labels, "
            f"test images and test labels, got {type(made).__name__}."
        )
    train_images, train_labels, test_images, test_labels = map(torch.as_tensor, made)
    if train_images.dtype != torch.uint8 or train_images.dim() != 4:
        wrong = f"{train_images.dtype} {tuple(train_images.shape)}"
        raise DataError(f"Data {own.name!r} of {own.origin}: images must be uint8 (N, C, H, W), got {wrong}.")
    num_classes = int(max(train_labels.max(), test_labels.max())) + 1
    names = tuple(str(number) for number in range(num_classes))
    return Dataset(own.name, train_images, train_labels.long(), test_images, test_labels.long(), names)


@contextmanager
def _same_draws() -> Iterator[None]:
    before = RngState([])
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)
    try:
        yield
    finally:
        before.restore()
