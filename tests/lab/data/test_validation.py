"""The held-out fifth: apart from what is trained on, fair to all classes, and not the test images."""

from dataclasses import replace

import pytest
import torch

from vsam.lab.data import load
from vsam.lab.data.validation import hold_out
from vsam.lab.errors import DataError


def numbered(count=1000, noise=0.2):
    """Make images whose first two pixels hold the training image's number. Test images are all 255."""
    dataset = load("fashion-mini").subset(train=count, test=50)
    images = dataset.train_images.clone()
    images[:, 0, 0, 0], images[:, 0, 0, 1] = torch.arange(count) // 256, torch.arange(count) % 256
    test = torch.full_like(dataset.test_images, 255)
    return replace(dataset, train_images=images, test_images=test).noisy(noise)


def numbers(images):
    return (images[:, 0, 0, 0].int() * 256 + images[:, 0, 0, 1].int()).tolist()


def test_every_training_image_is_in_one_part_with_its_label():
    dataset = numbered()
    parted = hold_out(dataset)
    trained, held_out = numbers(parted.train_images), numbers(parted.test_images)
    assert len(held_out) == 200
    assert sorted(trained + held_out) == list(range(1000))
    labels = [*parted.train_labels.tolist(), *parted.test_labels.tolist()]
    assert labels == [dataset.train_labels[number].item() for number in trained + held_out]


def test_no_test_image_is_left():
    parted = hold_out(numbered())
    assert not (parted.test_images == 255).all(dim=(1, 2, 3)).any()
    assert not (parted.train_images == 255).all(dim=(1, 2, 3)).any()


def test_every_class_gives_its_share():
    parted = hold_out(numbered())
    all_of_them = torch.cat([parted.train_labels, parted.test_labels]).bincount()
    assert ((parted.test_labels.bincount() - all_of_them / 5).abs() < 1).all()


def test_classes_of_fewer_than_five_images_do_not_empty_the_part():
    dataset = numbered(30, noise=0)
    assert dataset.train_labels.bincount().tolist() == [3] * 10
    assert len(hold_out(dataset).test_labels) == 6


def test_the_choice_is_always_the_same_and_leaves_generators_alone():
    before = torch.get_rng_state()
    first = numbers(hold_out(numbered()).test_images)
    torch.manual_seed(5)
    assert numbers(hold_out(numbered()).test_images) == first
    torch.set_rng_state(before)
    assert first != list(range(4, 1000, 5))


def test_runs_on_it_cannot_be_taken_for_results():
    assert hold_out(numbered()).name == "fashion-mini-validation"


def test_too_few_images_are_refused():
    with pytest.raises(DataError, match="only 4"):
        hold_out(load("fashion-mini").subset(train=4))
