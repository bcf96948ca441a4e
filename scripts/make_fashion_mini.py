"""Make the Fashion-MNIST that ships with the package: 400 training and 100 test images of each class.

    apt-get install dataset-fashion-mnist
    python scripts/make_fashion_mini.py

The same seed gives the same file, byte for byte. The full data set is found as by `load("fashion-mnist")`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from vsam.lab.data import load

TARGET = Path(__file__).resolve().parents[1] / "src/vsam/lab/data/fashion_mini.npz"


def main() -> None:
    """Choose the images and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=TARGET, help="file to write (default: the one in the package)")
    parser.add_argument("--data-dir", type=Path, help="folder that holds fashion-mnist/ (default: as load)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    full = load("fashion-mnist", arguments.data_dir)
    mini = full.subset(train=4_000, test=1_000, seed=arguments.seed)
    np.savez_compressed(
        arguments.out,
        train_images=mini.train_images.squeeze(1).numpy(),
        train_labels=mini.train_labels.numpy().astype(np.uint8),
        test_images=mini.test_images.squeeze(1).numpy(),
        test_labels=mini.test_labels.numpy().astype(np.uint8),
    )
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
