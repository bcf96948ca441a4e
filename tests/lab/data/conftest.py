"""Tiny data in the official layouts, with true sizes and checksums, so that the real code paths run."""

import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from vsam.lab.data import Dataset
from vsam.lab.data.cifar import Cifar
from vsam.lab.data.sources import ArchiveSource, KnownFile

CIFAR_FILES = ("first.bin", "second.bin", "test.bin")


def checksum(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach servers on this machine directly, whatever the environment says."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def make_cifar(tmp_path: Path) -> Callable[..., tuple[Cifar, dict[str, bytes]]]:
    """A factory: writes `origin/tiny.tar.gz` and returns its description and the files' contents."""

    def make(label_bytes: int = 1, url: str = "http://127.0.0.1:9/tiny.tar.gz") -> tuple[Cifar, dict[str, bytes]]:
        generator = np.random.default_rng(0)
        contents = {}
        for name in CIFAR_FILES:
            labels = generator.integers(0, 3, (4, label_bytes), dtype=np.uint8)
            pixels = generator.integers(0, 256, (4, 3072), dtype=np.uint8)
            contents[name] = np.concatenate([labels, pixels], axis=1).tobytes()
        folder = tmp_path / "origin" / "tiny-bin"
        folder.mkdir(parents=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        archive = tmp_path / "origin" / "tiny.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(folder, "tiny-bin")
        files = tuple(KnownFile(name, len(content), checksum(content)) for name, content in contents.items())
        source = ArchiveSource("Tiny", url, checksum(archive.read_bytes()), "tiny-bin", files)
        return Cifar("tiny", source, CIFAR_FILES[:2], CIFAR_FILES[2:], label_bytes, ("a", "b", "c")), contents

    return make


@pytest.fixture
def dataset() -> Dataset:
    """60 training and 30 test images of three classes, in random order, each image unlike the others."""
    generator = torch.Generator().manual_seed(1)

    def split(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randint(0, 256, (count, 3, 12, 10), dtype=torch.uint8, generator=generator)
        return images, (torch.arange(count) % 3)[torch.randperm(count, generator=generator)]

    return Dataset("toy", *split(60), *split(30), ("a", "b", "c"), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3))
