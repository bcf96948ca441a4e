from itertools import islice

import pytest
import torch

from vsam.lab.data import Augment, Batches, DataError
from vsam.lab.data.augment import normalise


def same(left, right):
    return len(left) == len(right) and all(
        torch.equal(a, b) for first, second in zip(left, right, strict=True) for a, b in zip(first, second, strict=True)
    )


@pytest.fixture
def batches(dataset):
    return Batches.train(dataset, batch_size=16, seed=3)


def test_an_epoch_holds_every_image_once_with_its_own_label(dataset, batches):
    epoch = list(batches.epoch(0))
    assert [len(batch.images) for batch in epoch] == [16, 16, 16, 12]
    assert len(epoch) == len(batches) == 4
    indices = torch.cat([batch.indices for batch in epoch])
    assert indices.sort().values.tolist() == list(range(60))
    assert indices.tolist() != list(range(60))
    assert torch.equal(torch.cat([batch.labels for batch in epoch]), dataset.train_labels[indices])


def test_images_are_those_of_their_indices(dataset):
    for images, _, indices in Batches.train(dataset, batch_size=16, augment=None).epoch(5):
        assert torch.equal(images, normalise(dataset.train_images[indices], dataset.mean, dataset.std))


def test_fifty_thousand_images_are_391_batches_of_128():
    images = torch.zeros(50_000, 1, 1, 1, dtype=torch.uint8)
    batches = Batches(images, torch.zeros(50_000).long(), mean=[0.0], std=[1.0], batch_size=128)
    assert len(batches) == 391
    assert len(list(batches)) == 391


def test_seed_and_epoch_are_all_that_is_needed(dataset, batches):
    list(batches.epoch(0))
    again = Batches.train(dataset, batch_size=16, seed=3)
    assert same(list(batches.epoch(7)), list(again.epoch(7)))


@pytest.mark.parametrize(("seed", "epoch"), [(3, 8), (7, 3), (4, 7)])
def test_another_seed_or_epoch_is_another_order_and_other_draws(dataset, batches, seed, epoch):
    first, other = list(batches.epoch(7)), list(Batches.train(dataset, batch_size=16, seed=seed).epoch(epoch))
    assert not torch.equal(first[0].indices, other[0].indices)
    where = {int(i): image for batch in other for i, image in zip(batch.indices, batch.images, strict=True)}
    unchanged = [torch.equal(where[int(i)], x) for b in first for i, x in zip(b.indices, b.images, strict=True)]
    assert sum(unchanged) < 30


@pytest.mark.parametrize("start", [0, 1, 3, 4])
def test_entering_an_epoch_at_a_batch_equals_having_run_up_to_it(batches, start):
    assert same(list(batches.epoch(2, start=start)), list(islice(batches.epoch(2), start, None)))


def test_two_epochs_can_run_side_by_side(batches):
    pairs = list(zip(batches.epoch(1), batches.epoch(2), strict=True))
    assert same([first for first, _ in pairs], list(batches.epoch(1)))
    assert same([second for _, second in pairs], list(batches.epoch(2)))


def test_global_generators_are_neither_read_nor_moved(batches):
    torch.manual_seed(0)
    first, before = list(batches.epoch(1)), torch.get_rng_state()
    assert torch.equal(torch.Generator().manual_seed(0).get_state(), before)
    torch.manual_seed(1)
    assert same(first, list(batches.epoch(1)))


def test_augmentation_does_not_depend_on_the_batch_size(dataset):
    small = torch.cat([b.images for b in Batches.train(dataset, batch_size=7, seed=3).epoch(1)])
    large = torch.cat([b.images for b in Batches.train(dataset, batch_size=60, seed=3).epoch(1)])
    assert torch.equal(small, large)


def test_test_batches_are_in_order_and_only_normalised(dataset):
    epoch = list(Batches.test(dataset, batch_size=20))
    assert torch.cat([batch.indices for batch in epoch]).tolist() == list(range(30))
    images = torch.cat([batch.images for batch in epoch])
    assert torch.equal(images, normalise(dataset.test_images, dataset.mean, dataset.std))
    assert torch.equal(torch.cat([batch.labels for batch in epoch]), dataset.test_labels)


def test_channels_last_changes_the_layout_and_nothing_else(dataset, batches):
    last = Batches.train(dataset, batch_size=16, seed=3, channels_last=True)
    for plain, other in zip(batches.epoch(0), last.epoch(0), strict=True):
        assert torch.equal(plain.images, other.images)
        assert plain.images.is_contiguous()
        assert other.images.is_contiguous(memory_format=torch.channels_last)


def test_everything_happens_on_the_images_device(dataset):
    # The meta device computes nothing, but refuses to be mixed with tensors of the CPU.
    for batch in Batches.train(dataset.to("meta"), batch_size=16).epoch(0):
        assert all(tensor.is_meta for tensor in batch)
        assert batch.images.shape[1:] == (3, 12, 10)


def test_random_batches_ask_for_the_epoch(batches):
    with pytest.raises(TypeError, match=r"batches\.epoch\(number\)"):
        iter(batches)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda batches: batches.epoch(-1), "epoch must not be negative, got -1"),
        (
            lambda batches: batches.epoch(0, start=5),
            "start must be from 0 to 4, the number of batches, got 5",
        ),
        (lambda batches: batches.epoch(0, start=-1), "start must be from 0 to 4"),
    ],
)
def test_impossible_places_are_refused_at_once(batches, call, message):
    with pytest.raises(DataError, match=message):
        call(batches)


def test_an_empty_batch_is_refused(dataset):
    with pytest.raises(DataError, match="batch_size must be at least 1, got 0"):
        Batches.train(dataset, batch_size=0)


def test_augmentation_without_shuffling_keeps_the_order(dataset):
    batches = Batches(
        dataset.train_images,
        dataset.train_labels,
        mean=dataset.mean,
        std=dataset.std,
        batch_size=60,
        augment=Augment(),
    )
    (batch,) = batches.epoch(0)
    assert batch.indices.tolist() == list(range(60))
    assert not torch.equal(batch.images, normalise(dataset.train_images, dataset.mean, dataset.std))


def test_several_processes_get_parts_of_the_same_batches(dataset):
    whole = list(Batches.train(dataset, batch_size=16, seed=3).epoch(1))
    parts = [list(Batches.train(dataset, batch_size=16, seed=3, rank=rank, size=3).epoch(1)) for rank in range(3)]
    for batch, *own in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([part.images for part in own]), batch.images)
        for part in own:
            assert torch.equal(part.labels, batch.labels)
            assert torch.equal(part.indices, batch.indices)
            assert len(part.images) in (len(batch.labels) // 3, len(batch.labels) // 3 + 1)
