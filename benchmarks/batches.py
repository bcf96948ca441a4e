"""Measure how many images a second the training batches deliver: `python benchmarks/batches.py`."""

from __future__ import annotations

import argparse
import time

import torch

from vsam.lab.data.augment import Augment
from vsam.lab.data.batches import Batches

__all__ = ["images_per_second", "main"]

_NORMAL_MEAN, _NORMAL_STD = 0.5, 0.25


def images_per_second(shape: tuple[int, int, int], *, count: int = 20_000, channels_last: bool = False) -> float:
    """Images a second over an epoch of `count` random images, everything on, after a warm-up epoch."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    batches = Batches(
        images,
        torch.zeros(count, dtype=torch.int64),
        mean=[_NORMAL_MEAN] * shape[0],
        std=[_NORMAL_STD] * shape[0],
        batch_size=128,
        shuffle=True,
        augment=Augment(),
        channels_last=channels_last,
    )
    for _ in batches.epoch(0):
        pass
    start = time.perf_counter()
    for _ in batches.epoch(1):
        pass
    return count / (time.perf_counter() - start)


def main() -> None:
    """Print the table for the shapes of CIFAR and Fashion-MNIST."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of torch (default: 1)")
    torch.set_num_threads(parser.parse_args().threads)
    for shape in ((3, 32, 32), (1, 28, 28)):
        for channels_last in (False, True):
            rate = images_per_second(shape, channels_last=channels_last)
            layout = "channels last" if channels_last else "channels first"
            print(f"{shape[0]}×{shape[1]}×{shape[2]}  {layout:14}  {rate:>9,.0f} images/s")


if __name__ == "__main__":
    main()
