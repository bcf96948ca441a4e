"""The options by which runs become Ray tasks: what makes no sense is refused before anything is started."""

import pytest

from vsam.lab.cli.ray import choose_ray_device, trainer
from vsam.lab.errors import UserError


def test_without_ray_runs_are_trained_here():
    with trainer(None, 1) as train:
        assert train is None


@pytest.mark.parametrize(
    ("ray", "workers", "message"),
    [(None, 2, "--workers 2 needs --ray. To train one run .* torchrun"), ("local", 0, "must be at least 1, got 0")],
)
def test_workers_without_a_meaning_are_refused(ray, workers, message):
    with pytest.raises(UserError, match=message):
        trainer(ray, workers).__enter__()


def test_a_cluster_may_have_gpus_that_this_machine_lacks():
    assert choose_ray_device("cuda", "head:6379").type == "cuda"
    assert choose_ray_device("cpu", "head:6379").type == "cpu"
