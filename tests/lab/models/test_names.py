"""Names: accepted spellings, and errors that help."""

import pytest

from vsam.lab import models


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("ResNet-18", "resnet18"),
        ("resnet-18", "resnet18"),
        (" RESNET_18 ", "resnet18"),
        ("ResNet-20", "resnet20"),
        ("WRN-28-10", "wrn28-10"),
        ("wrn28_10", "wrn28-10"),
        ("wrn 16 2", "wrn16-2"),
        ("WideResNet-28-10", "wrn28-10"),
        ("wide_resnet_28_10", "wrn28-10"),
        ("PyramidNet-110", "pyramidnet110"),
        ("pyramidnet110-270", "pyramidnet110"),
        ("PyramidNet_20_48", "pyramidnet20-48"),
        ("MobileNet", "mobilenet"),
        ("mobilenet-v1", "mobilenet"),
        ("MobileNetV1", "mobilenet"),
        ("mobilenet-100", "mobilenet"),
        ("MobileNet 25", "mobilenet-25"),
    ],
)
def test_spellings(spelling: str, name: str) -> None:
    assert models.canonical(spelling) == name


def test_listed_names_are_canonical_and_unique() -> None:
    listed = models.names()
    assert [models.canonical(name) for name in listed] == listed
    assert len(set(listed)) == len(listed)


def test_names_is_a_copy() -> None:
    models.names().clear()
    assert models.names()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("resent18", "resnet18"),
        ("wrn2810", "wrn28-10"),
        ("pyramidnet", "pyramidnet110"),
        ("mobilenetv2", "mobilenet"),
        ("wrn-28-10-3", "wrn28-10"),
    ],
)
def test_unknown_name_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown model '{name}'\. Did you mean .*{nearest}.*\?"):
        models.build(name)


@pytest.mark.parametrize("name", ["vgg", "", "18", "18resnet", "resnet!18", "resnet18.5", "wrn28"])
def test_unknown_name_lists_all(name: str) -> None:
    with pytest.raises(ValueError, match="unknown model") as error:
        models.build(name)
    assert ", ".join(models.names()) in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrn-29-10", r"6n\+4 .*got 29\. The nearest are 28 and 34"),
        ("wrn-4-2", r"6n\+4 .*got 4\. The nearest are 10 and 16"),
        ("resnet9", r"6n\+2 .*got 9\. The nearest are 8 and 14"),
        ("resnet2", r"6n\+2 .*got 2\. The nearest are 8 and 14"),
        ("pyramidnet111", r"6n\+2 .*got 111\. The nearest are 110 and 116"),
        ("wrn-16-0", "width, .* must be at least 1, got 0"),
        ("pyramidnet20-0", "alpha, .* must be at least 1, got 0"),
        ("resnet50", "bottleneck blocks.*resnet44 or resnet56"),
        ("resnet152", "bottleneck blocks.*resnet146 or resnet158"),
    ],
)
def test_impossible_network_says_the_rule(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.build(name)
    with pytest.raises(ValueError, match=message):
        models.canonical(name)


def test_classes_and_channels_must_be_positive() -> None:
    with pytest.raises(ValueError, match="num_classes must be at least 1, got 0"):
        models.build("resnet8", num_classes=0)
    with pytest.raises(ValueError, match="in_channels must be at least 1, got -1"):
        models.build("resnet8", in_channels=-1)
