"""The number of trainable parameters is the published one."""

import itertools

import pytest
import torch

from vsam.lab import models

COUNTS = {
    "resnet18": (11_173_962, 11_220_132),
    "wrn28-10": (36_479_194, 36_536_884),
    "pyramidnet110": (28_485_477, 28_511_307),
    "mobilenet": (3_217_226, 3_309_476),
    "resnet8": (75_290, 81_140),
    "resnet20": (269_722, 275_572),
    "wrn16-2": (691_674, 703_284),
}


def count(name: str, num_classes: int = 10, in_channels: int = 3) -> int:
    with torch.device("meta"):
        model = models.build(name, num_classes, in_channels)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_for_10_and_100_classes(name: str) -> None:
    assert (count(name, 10), count(name, 100)) == COUNTS[name]


def test_description_counts_every_listed_model() -> None:
    rows = {row["name"]: (row["parameters_10"], row["parameters_100"]) for row in models.describe()}
    assert rows == COUNTS


def test_description_says_the_structure_in_one_line() -> None:
    assert all(row["structure"] and "\n" not in row["structure"] for row in models.describe())


def test_description_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    models.describe()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("name", "stem_channels"), [("resnet18", 64), ("wrn28-10", 16), ("mobilenet", 32)])
def test_input_channels_change_the_stem_only(name: str, stem_channels: int) -> None:
    assert count(name, in_channels=3) - count(name, in_channels=1) == 2 * 9 * stem_channels


def test_other_depths_follow_the_rule() -> None:
    # Published by He et al. as 0.46 M, 0.66 M, 0.85 M and 1.7 M.
    millions = [round(count(f"resnet{depth}") / 1e6, 2) for depth in (32, 44, 56, 110)]
    assert millions == [0.46, 0.66, 0.85, 1.73]
    # Five blocks a stage are depth 34, not 28.
    assert round(count("wrn34-10") / 1e6, 2) == 46.16


def test_narrow_mobilenets_have_the_published_sizes() -> None:
    # Published by Howard et al. for 1,000 classes as 4.2 M, 2.6 M, 1.3 M and 0.5 M.
    millions = [round(count(f"mobilenet-{width}", 1000) / 1e6, 1) for width in (100, 75, 50, 25)]
    assert millions == [4.2, 2.6, 1.3, 0.5]
    with pytest.raises(ValueError, match="width must be at least 1 percent, got 0"):
        models.build("mobilenet-0")


@pytest.mark.parametrize(("depth", "alpha"), [(110, 48), (20, 270)])
def test_pyramids_of_any_depth_and_alpha(depth: int, alpha: int) -> None:
    num_blocks = (depth - 2) // 2
    widths = [round(16 + alpha * k / num_blocks) for k in range(num_blocks + 1)]
    stem = 27 * 16 + 2 * 16
    blocks = sum(
        9 * before * after + 9 * after * after + 2 * before + 2 * after + 2 * after
        for before, after in itertools.pairwise(widths)
    )
    classifier = 2 * widths[-1] + 10 * widths[-1] + 10
    assert count(f"pyramidnet{depth}-{alpha}") == stem + blocks + classifier
