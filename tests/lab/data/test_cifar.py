import numpy as np
import pytest
import torch

from vsam.lab.data import load
from vsam.lab.data.cifar import CIFAR10, CIFAR100, load_cifar
from vsam.lab.data.dataset import channel_statistics
from vsam.lab.data.sources import data_directory


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_labels_and_pixels_are_read_as_published(make_cifar, tmp_path, label_bytes):
    cifar, contents = make_cifar(label_bytes)
    dataset = load_cifar(cifar, tmp_path / "origin")
    train = contents["first.bin"] + contents["second.bin"]
    record = label_bytes + 3072
    for index in range(8):
        image = dataset.train_images[index]
        start = index * record
        # The label next to the pixels is the fine one; pixels go channel by channel, row by row.
        assert dataset.train_labels[index] == train[start + label_bytes - 1]
        for channel, row, column in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (2, 31, 31)):
            offset = start + label_bytes + channel * 1024 + row * 32 + column
            assert image[channel, row, column] == train[offset]
    expected = np.frombuffer(contents["test.bin"], np.uint8).reshape(4, record)[:, label_bytes:]
    assert dataset.test_images.reshape(4, 3072).tolist() == expected.tolist()
    assert (dataset.mean, dataset.std) == channel_statistics(dataset.train_images)
    assert dataset.class_names == ("a", "b", "c")


def test_the_descriptions_agree_with_the_format():
    for cifar, classes in ((CIFAR10, 10), (CIFAR100, 100)):
        assert len(set(cifar.class_names)) == classes
        sizes = {file.name: file.size for file in cifar.source.files}
        record = cifar.label_bytes + 3072
        assert sum(sizes[name] for name in cifar.train) == 50_000 * record
        assert sum(sizes[name] for name in cifar.test) == 10_000 * record
        assert set(sizes) == {*cifar.train, *cifar.test}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cifar", "mean", "std"),
    [
        (CIFAR10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        (CIFAR100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ],
    ids=["cifar10", "cifar100"],
)
def test_the_real_one_has_its_well_known_statistics(cifar, mean, std):
    if not (data_directory() / cifar.source.folder).exists():
        pytest.skip(f"{cifar.source.folder} is not in {data_directory()}")
    dataset = load(cifar.name, allow_download=False)
    assert dataset.mean == pytest.approx(mean, abs=6e-5)
    assert dataset.std == pytest.approx(std, abs=6e-5)
    assert dataset.train_images.shape == (50_000, 3, 32, 32)
    per_class = torch.bincount(dataset.train_labels)
    assert per_class.tolist() == [50_000 // len(cifar.class_names)] * len(cifar.class_names)
