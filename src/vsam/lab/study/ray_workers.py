"""Runs in Ray's processes: one process per run, or several workers of Ray Train that share its batches."""

import os
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vsam.lab.errors import RunError, UserError
from vsam.lab.files import write_atomically
from vsam.lab.ranks import ALONE, Ranks
from vsam.lab.recipes.load import bring
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.folder import run_path
from vsam.lab.runs.tensorboard import Observe
from vsam.lab.runs.train import Run, load_data

__all__ = ["Job", "train_job", "train_job_on_workers"]

_MOST_FAILURES = 2
"""How often Ray restarts a run's workers if one of them dies."""


@dataclass(frozen=True)
class Job:
    """One run, described for a process elsewhere.

    Args:
        recipe: as TOML.
        runs: the folder of all runs.
        data_dir: dataset directory.
        device: `cpu` or `cuda`.
        threads: to compute with.
        observe: called with the run before it trains.
    """

    recipe: str
    runs: Path
    data_dir: Path | None
    device: str
    threads: int
    observe: Observe


def train_job(job: Job, ranks: Ranks = ALONE, device: torch.device | None = None) -> str | None:
    """Train the run, or this process's part of it, to the end; returns what went wrong."""
    torch.set_num_threads(job.threads)
    content = tomllib.loads(job.recipe)
    bring(content.get("use", {}))
    settings = Recipe.model_validate(content)
    where = torch.device(job.device) if device is None else device
    try:
        dataset = load_data(settings, job.data_dir, where)
        run = Run(settings, run_path(job.runs, settings), dataset, where, ranks=ranks)
    except (RunError, UserError) as error:
        return str(error)
    try:
        if ranks.is_first:
            job.observe(run)
        while not run.is_finished:
            run.train_epoch()
    except RunError as error:
        return str(error)
    finally:
        run.close()
    return None


def train_job_on_workers(job: Job, workers: int, cores: int) -> str | None:
    """Train the run to the end on `workers` workers with `cores` cores each; returns what went wrong."""
    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"  # the user's paths are relative to where the command was run
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    job.runs.mkdir(parents=True, exist_ok=True)
    storage = tempfile.mkdtemp(prefix=".ray-", dir=job.runs)  # Ray Train needs a folder that all workers see
    failure = Path(storage) / "failure"
    try:
        trainer = TorchTrainer(
            _work,
            train_loop_config={"job": job, "failure": failure},
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=job.device == "cuda", resources_per_worker={"CPU": cores}
            ),
            run_config=RunConfig(storage_path=storage, failure_config=FailureConfig(max_failures=_MOST_FAILURES)),
        )
        trainer.fit()
        return failure.read_text(encoding="utf-8") if failure.exists() else None
    finally:
        shutil.rmtree(storage, ignore_errors=True)


def _work(config: dict[str, Any]) -> None:
    from ray.train.torch import get_device
    from torch import distributed

    device: Any = get_device()
    ranks = Ranks(distributed.get_rank(), distributed.get_world_size())
    failure = train_job(config["job"], ranks, device)
    if failure is not None and ranks.is_first:
        write_atomically(config["failure"], failure)
