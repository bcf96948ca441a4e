"""Each batched function against a slow twin that handles one image, one pixel at a time."""

import pytest
import torch

from vsam.lab.data import Augment, DataError
from vsam.lab.data.augment import Draws, crop, cutout, flip, normalise

MEAN, STD = (0.1, 0.5, 0.7), (0.2, 0.3, 0.25)


def slow_crop(image, top, left, padding):
    result = torch.zeros_like(image)
    _, height, width = image.shape
    for row in range(height):
        for column in range(width):
            from_row, from_column = row + top - padding, column + left - padding
            if 0 <= from_row < height and 0 <= from_column < width:
                result[:, row, column] = image[:, from_row, from_column]
    return result


def slow_flip(image, is_flipped):
    width = image.shape[2]
    columns = [width - 1 - column if is_flipped else column for column in range(width)]
    return torch.stack([image[:, :, column] for column in columns], dim=2)


def slow_normalise(image, mean, std):
    return torch.stack([(plane.double() / 255 - m) / s for plane, m, s in zip(image, mean, std, strict=True)])


def slow_cutout(image, row, column, is_cut, size):
    result = image.clone()
    if is_cut:
        top, left = row - size // 2, column - size // 2
        result[:, max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = 0
    return result


@pytest.fixture(params=[(3, 32, 32), (1, 28, 28), (3, 9, 13)], ids=str)
def images(request):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, 256, (40, *request.param), dtype=torch.uint8, generator=generator)


def draw(images, augment):
    return augment.draw(len(images), *images.shape[2:], torch.Generator().manual_seed(7))


def statistics(images):
    return MEAN[: images.shape[1]], STD[: images.shape[1]]


@pytest.mark.parametrize("padding", [1, 4])
def test_crop_equals_its_twin(images, padding):
    draws = draw(images, Augment(padding=padding))
    result = crop(images, draws.tops, draws.lefts, padding)
    for image, cropped, top, left in zip(images, result, draws.tops, draws.lefts, strict=True):
        assert torch.equal(cropped, slow_crop(image, int(top), int(left), padding))


def test_flip_equals_its_twin(images):
    draws = draw(images, Augment())
    assert {True, False} == set(draws.flips.tolist())
    for image, flipped, is_flipped in zip(images, flip(images, draws.flips), draws.flips, strict=True):
        assert torch.equal(flipped, slow_flip(image, bool(is_flipped)))


def test_normalise_equals_its_float64_twin(images):
    mean, std = statistics(images)
    result = normalise(images, mean, std)
    assert result.dtype == torch.float32
    for image, normal in zip(images, result, strict=True):
        torch.testing.assert_close(normal.double(), slow_normalise(image, mean, std), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 16, 40])
def test_cutout_equals_its_twin(images, size):
    draws = draw(images, Augment())
    assert {True, False} == set(draws.cuts.tolist())
    values = images.float() + 1
    result = cutout(values, draws.rows, draws.columns, draws.cuts, size)
    for image, cut, row, column, is_cut in zip(values, result, draws.rows, draws.columns, draws.cuts, strict=True):
        assert torch.equal(cut, slow_cutout(image, int(row), int(column), bool(is_cut), size))


def test_the_whole_is_crop_flip_normalise_cutout_in_this_order(images):
    augment, (mean, std) = Augment(padding=2, cutout=6), statistics(images)
    draws = draw(images, augment)
    result = augment(images, draws, mean, std)
    for index, image in enumerate(images):
        top, left, is_flipped, row, column, is_cut = (values[index].item() for values in draws)
        expected = slow_normalise(slow_flip(slow_crop(image, top, left, 2), is_flipped), mean, std)
        expected = slow_cutout(expected, row, column, is_cut, 6)
        torch.testing.assert_close(result[index].double(), expected, rtol=1e-5, atol=1e-6)


def test_padding_is_black_and_the_cut_box_is_the_mean():
    white = torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)
    one, zero = torch.tensor([1]), torch.tensor([0])
    draws = Draws(zero, zero, zero.bool(), one * 7, one * 7, one.bool())
    result = Augment(padding=2, cutout=4)(white, draws, (0.5,), (0.25,))
    assert result[0, 0, 0, 0] == -2.0
    assert result[0, 0, 7, 7] == 0.0
    assert result[0, 0, 3, 3] == 2.0


def test_functions_leave_their_inputs_alone(images):
    before = images.clone()
    augment = Augment()
    augment(images, draw(images, augment), *statistics(images))
    assert torch.equal(images, before)


def test_switched_off_parts_do_nothing(images):
    mean, std = statistics(images)
    for off in (Augment(0, 0.0, 0, 0.5), Augment(0, 0.0, 16, 0.0)):
        assert torch.equal(off(images, draw(images, off), mean, std), normalise(images, mean, std))


def test_switching_a_part_off_leaves_the_other_draws_as_they_are(images):
    full, without_crop = draw(images, Augment()), draw(images, Augment(padding=0, cutout_probability=0.0))
    assert torch.equal(full.flips, without_crop.flips)
    assert torch.equal(full.rows, without_crop.rows)
    assert torch.equal(full.columns, without_crop.columns)


def test_draws_cover_their_ranges_evenly():
    count = 90_000
    draws = Augment(padding=4).draw(count, 32, 28, torch.Generator().manual_seed(0))
    for values, size in ((draws.tops, 9), (draws.lefts, 9), (draws.rows, 32), (draws.columns, 28)):
        counts = values.bincount()
        assert len(counts) == size
        assert (counts - count / size).abs().max() < 5 * (count / size) ** 0.5
    for flags in (draws.flips, draws.cuts):
        assert abs(int(flags.sum()) - count / 2) < 5 * (count / 4) ** 0.5
    both = int((draws.flips & draws.cuts).sum())
    assert abs(both - count / 4) < 5 * (count * 3 / 16) ** 0.5


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"padding": -1}, "padding must not be negative, got -1"),
        ({"cutout": -2}, "cutout must not be negative, got -2"),
        ({"flip": 1.5}, "flip must be from 0 to 1, got 1.5"),
        ({"cutout_probability": -0.1}, "cutout_probability must be from 0 to 1, got -0.1"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    with pytest.raises(DataError, match=message):
        Augment(**setting)


def test_repr_rebuilds_it():
    augment = Augment(padding=2, flip=0.25)
    assert eval(repr(augment)) == augment
