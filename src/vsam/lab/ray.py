"""Train runs as Ray tasks, one task per run, on this machine or on a cluster that shares its files."""

import logging
import os
import socket
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vsam.lab.compare import Failures, Train
from vsam.lab.environment import choose_device
from vsam.lab.errors import RunError, UserError, install_line
from vsam.lab.plugins import bring
from vsam.lab.progress import Shown
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.run import read_run, run_path
from vsam.lab.tensorboard import Observe
from vsam.lab.train import Trainer, load_data

__all__ = ["choose_ray_device", "trainer"]

_SECONDS_BETWEEN_LOOKS = 1.0
_MOST_RETRIES = 2  # of a run whose worker died
_log = logging.getLogger(__name__)


def choose_ray_device(name: str | None, address: str | None) -> torch.device:
    """Return the device to train on. A cluster may have GPUs where this machine has none."""
    return torch.device("cuda") if address is not None and name == "cuda" else choose_device(name)


@contextmanager
def trainer(address: str | None) -> Iterator[Train | None]:
    """Connect to Ray, and yield a function that trains recipes as its tasks: same folders, same numbers.

    A task computes with as many threads as this process, because their number changes the last bits of a sum, and asks
    Ray for as many cores. Set OMP_NUM_THREADS=1 for one run per core. On GPUs, each run gets its own.
    Runs do not alternate, so their speeds are not compared epoch by epoch.

    Args:
        address: of the cluster, "local" to start Ray on this machine, or None to train without Ray.
    """
    if address is None:
        yield None
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a future default; unset, Ray warns
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UserError(f"--ray needs the package ray: {install_line('lab', 'ray')}.") from error
    is_local = address == "local"
    try:
        host, colon, port = address.removeprefix("ray://").rpartition(":")
        if colon:  # Ray itself tries for minutes before it gives up on an unreachable machine
            socket.create_connection((host, int(port)), timeout=10).close()
        quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(None if is_local else address, include_dashboard=False if is_local else None, **quiet)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        raise UserError(f"Ray cannot be reached at {address!r}: {error}. Give HOST:PORT of its head node.") from error
    try:
        yield partial(_train, ray)
    finally:
        ray.shutdown()


def _train(
    ray: Any,
    recipes: Sequence[Recipe],
    out: Path,
    data_dir: Path | None,
    device: torch.device,
    progress: Shown,
    observe: Observe,
) -> Failures:
    gpus, resources = int(device.type == "cuda"), ray.cluster_resources()
    if gpus and not resources.get("GPU"):
        raise UserError("--device cuda: Ray has no GPU. Start it with --num-gpus, or give --device cpu.")
    largest = max(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["Alive"])
    cores = max(1, min(torch.get_num_threads(), largest))  # so that a task always fits somewhere
    needs = f"{cores} core{'s' if cores > 1 else ''}{' and a GPU' if gpus else ''}"
    has = f"{resources.get('CPU', 0):g} cores and {resources.get('GPU', 0):g} GPUs"
    _log.info("Ray: %d runs, each with %s; Ray has %s.", len(recipes), needs, has)
    task = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=_MOST_RETRIES)(_train_run)
    place, data = out.resolve(), None if data_dir is None else data_dir.resolve()
    given = data, device.type, torch.get_num_threads(), observe
    waiting = {task.remote(recipe.to_toml(), run_path(place, recipe), *given): recipe for recipe in recipes}
    shown: dict[Path, int] = {}
    failures: Failures = []
    while waiting:
        done, _ = ray.wait(list(waiting), timeout=_SECONDS_BETWEEN_LOOKS)
        for recipe in waiting.values():
            path = run_path(place, recipe)
            lines = read_run(path).epochs
            for line in lines[shown.get(path, 0) :]:
                progress.advance(recipe.label, recipe.seed, line["step"])
                progress.epoch(recipe.label, recipe.seed, line)
            shown[path] = len(lines)
        for finished in done:
            recipe = waiting.pop(finished)
            try:
                failure = ray.get(finished)
            except ray.exceptions.RayError as error:
                failure = f"its worker failed: {str(error).splitlines()[0]}"
            failures += [(recipe, failure)] if failure else []
    return failures


def _train_run(
    recipe: str, path: Path, data_dir: Path | None, device: str, threads: int, observe: Observe
) -> str | None:
    """Train a run to its end in a Ray worker, and return what went wrong."""
    torch.set_num_threads(threads)
    content = tomllib.loads(recipe)
    try:
        bring(content.get("use", {}))
        settings, where = Recipe.model_validate(content), torch.device(device)
        with closing(Trainer(settings, path, load_data(settings, data_dir, where), where)) as run:
            observe(run)
            while not run.is_finished:
                run.train_epoch()
    except (RunError, UserError) as error:
        return str(error)
    return None
