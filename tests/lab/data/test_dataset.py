from dataclasses import replace

import pytest
import torch

from vsam.lab.data import DataError, Dataset
from vsam.lab.data.dataset import channel_statistics


def rows(images):
    return {bytes(image.flatten().tolist()) for image in images}


def test_a_subset_is_balanced_and_keeps_images_with_their_labels(dataset):
    small = dataset.subset(train=9, test=6, seed=3)
    assert small.train_labels.bincount().tolist() == [3, 3, 3]
    assert small.test_labels.bincount().tolist() == [2, 2, 2]
    label_of = {
        bytes(i.flatten().tolist()): int(y) for i, y in zip(dataset.train_images, dataset.train_labels, strict=True)
    }
    for image, label in zip(small.train_images, small.train_labels, strict=True):
        assert label_of[bytes(image.flatten().tolist())] == label
    assert len(rows(small.train_images)) == 9


def test_a_surplus_of_a_subset_is_at_most_one_a_class(dataset):
    assert dataset.subset(train=11).train_labels.bincount().tolist() == [4, 4, 3]


def test_a_subset_is_fixed_by_its_seed(dataset):
    first, again, other = (dataset.subset(train=9, test=6, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.train_images, again.train_images)
    assert torch.equal(first.test_images, again.test_images)
    assert not torch.equal(first.train_images, other.train_images)


def test_a_smaller_subset_lies_in_a_larger_one_and_splits_are_independent(dataset):
    small, large = dataset.subset(train=10, test=6), dataset.subset(train=20, test=6)
    assert rows(small.train_images) < rows(large.train_images)
    assert torch.equal(small.test_images, large.test_images)
    assert dataset.subset(test=6).train_images is dataset.train_images


def test_held_out_images_are_training_images_that_are_not_trained_on(dataset):
    held = dataset.held_out(train=10, test=6)
    assert torch.equal(held.train_images, dataset.subset(train=10).train_images)
    assert held.test_labels.bincount().tolist() == [2, 2, 2]
    assert rows(held.test_images) <= rows(dataset.train_images)
    assert not rows(held.test_images) & (rows(held.train_images) | rows(dataset.test_images))
    assert (held.split, held.num_available) == ("validation", 60)


def test_more_held_out_images_than_are_left_are_refused(dataset):
    with pytest.raises(DataError, match="train and held-out must be from 1 to 60 for toy, got 61"):
        dataset.held_out(train=55, test=6)


def test_a_subset_keeps_the_order_of_the_images(dataset):
    everything = dataset.subset(train=60)
    assert torch.equal(everything.train_images, dataset.train_images)


@pytest.mark.parametrize("count", [0, -1, 61])
def test_a_subset_of_impossible_size_is_refused(dataset, count):
    with pytest.raises(DataError, match=f"train must be from 1 to 60 for toy, got {count}"):
        dataset.subset(train=count)


def test_a_subset_that_cannot_be_balanced_names_the_class(dataset):
    unbalanced = replace(dataset, train_labels=torch.tensor([0] * 50 + [1] * 8 + [2] * 2))
    with pytest.raises(DataError, match="class 'c' has 2 of the 3 it needs"):
        unbalanced.subset(train=9)


@pytest.mark.parametrize(("rate", "changed"), [(0.0, 0), (0.2, 12), (0.11, 7), (1.0, 60)])
def test_noise_changes_exactly_its_share_to_another_class(dataset, rate, changed):
    noisy = dataset.noisy(rate, seed=5)
    assert int((noisy.train_labels != dataset.train_labels).sum()) == changed
    assert set(noisy.train_labels.tolist()) <= {0, 1, 2}
    assert torch.equal(noisy.test_labels, dataset.test_labels)


def test_noise_is_uniform_over_the_other_classes():
    count = 40_000
    images = torch.zeros(count, 1, 1, 1, dtype=torch.uint8)
    labels = torch.full((count,), 2)
    single = Dataset("x", images, labels, images, labels, tuple("abcde"), (0.0,), (1.0,))
    counts = single.noisy(1.0, seed=0).train_labels.bincount(minlength=5)
    assert counts[2] == 0
    # Five standard deviations of a binomial with p = 1/4.
    assert (counts[[0, 1, 3, 4]] - count / 4).abs().max() < 5 * (count * 3 / 16) ** 0.5


def test_noise_is_fixed_by_its_seed_and_leaves_the_original_alone(dataset):
    before = dataset.train_labels.clone()
    first, again, other = (dataset.noisy(0.5, seed=seed).train_labels for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(dataset.train_labels, before)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_an_impossible_noise_rate_is_refused(dataset, rate):
    with pytest.raises(DataError, match=f"rate must be from 0 to 1, got {rate}"):
        dataset.noisy(rate)


def test_random_choices_leave_the_global_generator_alone(dataset):
    before = torch.get_rng_state()
    dataset.subset(train=9, test=6)
    dataset.noisy(0.5)
    assert torch.equal(torch.get_rng_state(), before)


def test_channel_statistics_equal_the_plain_formula(dataset):
    mean, std = channel_statistics(dataset.train_images)
    pixels = dataset.train_images.double() / 255
    torch.testing.assert_close(torch.tensor(mean, dtype=torch.float64), pixels.mean((0, 2, 3)))
    torch.testing.assert_close(torch.tensor(std, dtype=torch.float64), pixels.std((0, 2, 3), correction=0))


def test_a_constant_channel_does_not_divide_by_zero():
    assert channel_statistics(torch.full((2, 1, 3, 3), 7, dtype=torch.uint8)) == ((7 / 255,), (1.0,))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("train_images", torch.zeros(60, 3, 12, 10), "train images must be uint8"),
        ("train_images", torch.zeros(60, 12, 10, dtype=torch.uint8), "train images must be uint8"),
        ("train_images", torch.zeros(60, 3, 9, 9, dtype=torch.uint8), "must have the same shape"),
        ("test_labels", torch.zeros(30, dtype=torch.int32), "test labels must be int64"),
        ("test_labels", torch.zeros(29, dtype=torch.int64), "test labels must be int64 \\(30,\\)"),
        ("train_labels", torch.full((60,), 3), "labels must be from 0 to 2, got 3 to 3"),
        ("train_labels", torch.full((60,), -1), "labels must be from 0 to 2, got -1 to -1"),
        ("mean", (0.5,), "3 channels, but mean has 1"),
        ("std", (0.5, 0.0, 0.5), "std must be positive"),
    ],
)
def test_inconsistent_tensors_are_refused(dataset, field, value, message):
    with pytest.raises(DataError, match=message):
        replace(dataset, **{field: value})


def test_an_empty_split_is_refused(dataset):
    with pytest.raises(DataError, match="test split must not be empty"):
        replace(dataset, test_images=dataset.test_images[:0], test_labels=dataset.test_labels[:0])


def test_repr_is_one_line_with_the_sizes(dataset):
    assert repr(dataset) == "<Dataset toy: 60 train, 30 test, 3 classes, 3×12×10>"


def test_all_tensors_move_to_the_device(dataset):
    moved = dataset.to("meta")
    tensors = (moved.train_images, moved.train_labels, moved.test_images, moved.test_labels)
    assert all(tensor.is_meta for tensor in tensors)
