"""`vsam data` describes the content of the data directory."""

import pytest

from lab.command import vsam
from vsam.lab.data.cifar import CIFAR10, CIFAR100


@pytest.fixture
def say(tmp_path):
    """Run `vsam data` and return what it prints, as one line."""

    def say():
        command = vsam("data", "--data-dir", "data", folder=tmp_path)
        assert (command.code, command.stderr) == (0, "")
        return " ".join(command.stdout.split())

    (tmp_path / "data").mkdir()
    return say


@pytest.mark.slow
def test_what_is_damaged_is_called_so_with_what_to_do(tmp_path, say):
    for cifar in (CIFAR10, CIFAR100):
        assert f"not found. Downloaded at first use into data from {cifar.source.url}" in say()
        (tmp_path / "data" / cifar.source.folder).mkdir()
    for cifar in (CIFAR10, CIFAR100):
        folder, first = cifar.source.folder, cifar.source.files[0].name
        assert f"damaged. data/{folder} is incomplete: {first} is missing. Delete data/{folder} and rerun" in say()
    assert "not found. Downloaded" not in say()


def test_a_link_to_nowhere_is_damage(tmp_path, say):
    (tmp_path / "data" / CIFAR10.source.archive).symlink_to("nowhere")
    assert f"damaged. data/{CIFAR10.source.archive} is a link to nowhere, which does not exist." in say()
