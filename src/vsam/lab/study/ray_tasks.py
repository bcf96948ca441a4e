"""The runs of a study as Ray tasks, on this machine or on a cluster that shares its files."""

import importlib.util
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vsam.lab.comparison.compare import Train
from vsam.lab.comparison.progress import Progress
from vsam.lab.errors import UserError
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.finished import read_epochs
from vsam.lab.runs.folder import check_settings, run_path
from vsam.lab.runs.store import RunStore, sentence
from vsam.lab.runs.tensorboard import Observe
from vsam.lab.study.ray_workers import Job, train_job, train_job_on_workers

__all__ = ["ray_trainer"]

_SECONDS_BETWEEN_LOOKS = 1.0
_LOG = logging.getLogger("vsam.lab.study")


@contextmanager
def ray_trainer(address: str, workers: int = 1) -> Iterator[Train]:
    """A trainer that runs recipes as Ray tasks: same folders, same numbers.

    A task computes with as many threads as this process, because their number changes the last bits of a sum, and asks
    Ray for as many cores; set OMP_NUM_THREADS=1 for one run per core. On GPUs, each run gets its own.
    Runs do not alternate, so their speeds are not compared epoch by epoch.

    Args:
        address: of the cluster, or "local" to start Ray on this machine.
        workers: processes per run, which share its batches; on GPUs, each gets its own.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a future default; unset, Ray warns
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UserError("--ray needs the package ray: pip install 'vsam[lab,ray]'.") from error
    if workers > 1 and not all(importlib.util.find_spec(name) for name in ("pandas", "pyarrow")):
        raise UserError("--workers needs Ray Train: pip install 'vsam[lab,ray]'.")
    _check_answers(address)
    try:
        ray.init(
            address=None if address == "local" else address,
            include_dashboard=False if address == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(f"Ray cannot be reached at {address!r}: {error}") from error
    try:
        yield partial(_train, ray, workers)
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Fail fast: Ray itself tries for minutes before it gives up on an unreachable machine."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return  # "local", "auto" and the like
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"Ray cannot be reached at {address!r}: {error}. Give HOST:PORT of its head node.") from error


def _train(
    ray: Any,
    workers: int,
    recipes: Sequence[Recipe],
    store: RunStore,
    data_dir: Path | None,
    device: torch.device,
    progress: Progress,
    observe: Observe = lambda run: None,
) -> list[str]:
    for recipe in recipes:
        check_settings(store.run(recipe), recipe)
    missing = [recipe for recipe in recipes if not store.run(recipe).is_finished]
    runs = store.out.resolve()
    data = None if data_dir is None else data_dir.resolve()
    threads, gpus, resources = torch.get_num_threads(), workers if device.type == "cuda" else 0, ray.cluster_resources()
    cores = max(1, min(threads, _cores(ray), int(resources.get("CPU", 0)) // workers))
    at_once = _at_once(len(missing), workers * cores, gpus, resources)
    if missing:
        _LOG.info(_sharing(len(missing), workers * cores, gpus, resources))
    start = _starter(ray, workers, cores, gpus)
    waiting: dict[Any, Recipe] = {}
    shown: dict[int, int] = {}
    failures = []
    while missing or waiting:
        while missing and (workers == 1 or len(waiting) < at_once):  # Ray Train would only wait for its workers
            recipe = missing.pop(0)
            waiting[start(Job(recipe.to_toml(), runs, data, device.type, threads, observe))] = recipe
        done, _ = ray.wait(list(waiting), timeout=_SECONDS_BETWEEN_LOOKS)
        for recipe in waiting.values():
            _show(recipe, run_path(runs, recipe), progress, shown)
        for finished in done:
            recipe = waiting.pop(finished)
            try:
                failure = ray.get(finished)
            except ray.exceptions.RayError as error:
                failure = f"its worker failed: {str(error).splitlines()[0]}"
            if failure is not None:
                failures.append(sentence(recipe, failure))
    return failures


def _cores(ray: Any) -> int:
    """The cores of the largest node, so that a task always fits somewhere."""
    return max(1, *(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]))


def _starter(ray: Any, workers: int, cores: int, gpus: int) -> Callable[[Job], Any]:
    """A function that starts a job, and returns Ray's reference to its outcome."""
    if workers == 1:
        task = ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=2)(train_job)
        return lambda job: task.remote(job)
    # It only waits for the workers, which request their own resources.
    group = ray.remote(num_cpus=0, max_retries=0)(train_job_on_workers)
    return lambda job: group.remote(job, workers, cores)


def _at_once(num_runs: int, cores: int, gpus: int, resources: Mapping[str, float]) -> int:
    """How many runs with this many cores and GPUs fit; two runs never share a GPU."""
    all_cores, all_gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if gpus and not all_gpus:
        raise UserError("--device cuda: Ray has no GPU. Start it with --num-gpus, or give --device cpu.")
    if cores > max(1, all_cores) or gpus > all_gpus:
        needs, has = (_count(gpus, "GPU"), all_gpus) if gpus > all_gpus else (_count(cores, "core"), all_cores)
        raise UserError(f"Each run needs {needs} for its workers, but Ray has {has}. Use fewer --workers.")
    return max(1, min(num_runs, all_cores // cores, *([all_gpus // gpus] if gpus else [])))


def _sharing(num_runs: int, cores: int, gpus: int, resources: Mapping[str, float]) -> str:
    """How the runs are distributed over the cluster."""
    all_cores, all_gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    at_once = _at_once(num_runs, cores, gpus, resources)
    own = "its own GPU" if gpus == 1 else f"its own {gpus} GPUs" if gpus else "no GPU"
    each, has = f"{_count(cores, 'core')} and {own}", f"{_count(all_cores, 'core')} and {_count(all_gpus, 'GPU')}"
    hint = " Give --device cuda to train on the GPUs." if all_gpus and not gpus else ""
    return f"Ray: {_count(num_runs, 'run')}, each with {each}; Ray has {has}: {at_once} at a time.{hint}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _show(recipe: Recipe, path: Path, progress: Progress, shown: dict[int, int]) -> None:
    """Report what a task has written to its folder since the last look."""
    lines, _ = read_epochs(path)
    for line in lines[shown.get(id(recipe), 0) :]:
        progress.advance(recipe.label, recipe.seed, line["step"])
        progress.epoch(recipe.label, recipe.seed, line)
    shown[id(recipe)] = len(lines)
