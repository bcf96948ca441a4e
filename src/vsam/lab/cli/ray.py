"""Options that train a command's runs as Ray tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from vsam.lab.cli.options import option
from vsam.lab.errors import UserError

if TYPE_CHECKING:
    import torch

    from vsam.lab.comparison.compare import Train

__all__ = ["Ray", "Workers", "choose_ray_device", "trainer"]

_TASKS = "Train the runs as Ray tasks, here or on a cluster. On GPUs, each run gets its own."
Ray = Annotated[str | None, option("--ray", _TASKS, metavar="[ADDRESS]")]
Workers = Annotated[int, option("--workers", "With --ray: processes per run, which share its batches.")]


def choose_ray_device(name: str | None, ray: str | None) -> "torch.device":
    """The device to train on; a cluster may have GPUs where this machine has none."""
    import torch

    from vsam.lab.runs.environment import choose_device

    return torch.device("cuda") if ray is not None and name == "cuda" else choose_device(name)


@contextmanager
def trainer(ray: str | None, workers: int) -> "Iterator[Train | None]":
    """The function that trains runs as Ray tasks; None to train in this process."""
    if workers < 1:
        raise UserError(f"--workers must be at least 1, got {workers}.")
    if ray is None:
        if workers > 1:
            raise UserError(
                f"--workers {workers} needs --ray. To train one run with several processes: torchrun --nproc-per-node "
                f"{workers} -m vsam train."
            )
        yield None
        return
    from vsam.lab.study.ray_tasks import ray_trainer

    with ray_trainer(ray, workers) as train:
        yield train
