"""The runs of the map: how much sharpness-aware methods gain, over settings that overfit more or less.

python -m research.map.run --jobs 2            run what is missing, a setting after the other
python -m research.map.run --budget 1.5        start no run after an hour and a half
python -m research.map.run --setting NAME      only this one

The rules are in plan.toml, written before the runs. Every finished run is a line of results/SETTING.jsonl: the same
command resumes.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from research.map.plan import HERE, Plan, Results, Run, Setting, read_plan
from research.map.train import train
from vsam.lab.environment import describe_environment
from vsam.lab.errors import UserError
from vsam.lab.files import make_folder, write_atomically

__all__ = ["main", "read_results", "run_study"]


def read_results(out: Path, setting: Setting) -> Results:
    """Return the finished runs of a setting."""
    path = out / f"{setting.name}.jsonl"
    return Results(map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.exists() else ())


def run_study(
    plan: Plan, settings: Sequence[Setting], out: Path, data_dir: str | None, jobs: int, hours: float, command: str
) -> bool:
    """Run what is missing until the hours are over, and return whether nothing is.

    Args:
        plan: the rules.
        settings: those to run, in this order; the additional seeds follow after all of them.
        out: the folder of the results.
        data_dir: dataset directory.
        jobs: processes, with a thread each.
        hours: no run starts after them.
        command: recorded with every run.
    """
    make_folder(out)
    deadline = time.monotonic() + 3600 * hours
    torch.set_num_threads(1)
    about = {"command": command, **describe_environment(torch.device("cpu"))}
    try:
        with FileLock(out / ".lock", timeout=0), _pool(jobs) as pool:
            for all_seeds in (False, True):
                for setting in settings:
                    done = read_results(out, setting)
                    while due := plan.due(setting, done, all_seeds=all_seeds):
                        for run, found in _finished(pool, jobs, setting, due, data_dir, deadline):
                            done.add({"run": asdict(run), **found, "environment": about})
                            write_atomically(out / f"{setting.name}.jsonl", done.text())
                            _say(run, found)
                            due.remove(run)
                        if due:
                            return False
    except Timeout as error:
        raise UserError(
            f"Another process is running the map in {out}: use --jobs 2 instead, or another --out."
        ) from error
    return True


def _pool(jobs: int) -> Executor:
    """Return an executor. A single job runs in this process, so that killing it kills the run."""
    if jobs == 1:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,))


def _finished(
    pool: Executor, jobs: int, setting: Setting, due: Sequence[Run], data_dir: str | None, deadline: float
) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Yield runs with their measurements as they finish. None starts after the deadline."""
    todo, running = list(due), dict[Future[dict[str, Any]], Run]()
    while todo or running:
        while todo and len(running) < jobs and time.monotonic() < deadline:
            run = todo.pop(0)
            running[pool.submit(train, setting, run, data_dir)] = run
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future), future.result()


def _say(run: Run, found: dict[str, Any]) -> None:
    length = f", {run.epochs} epochs" if run.phase == "confirm" else ""
    print(
        f"{run.setting} {run.phase} {run.method} seed {run.seed} lr {run.lr:g} weight decay {run.weight_decay:g} rho "
        f"{run.rho:g}{length}: held out {found['held_out_accuracy']:.1f} %, {found['cpu_seconds']:.0f} s",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="processes, one per core (default 1)")
    parser.add_argument("--budget", type=float, default=1e6, metavar="HOURS", help="start no run after this time")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME")
    parser.add_argument("--plan", type=Path, default=HERE / "plan.toml")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--data-dir", help="default: $VSAM_DATA, or the user's cache folder")
    given = parser.parse_args(arguments)
    plan = read_plan(given.plan)
    if unknown := [name for name in given.setting if name not in plan.settings]:
        parser.error(f"the plan has no setting {unknown[0]!r}: choose from {', '.join(plan.settings)}")
    if given.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {given.jobs}")
    wanted = [plan.settings[name] for name in given.setting or plan.settings]
    command = f"python -m research.map.run --jobs {given.jobs}"
    is_finished = run_study(plan, wanted, given.out, given.data_dir, given.jobs, given.budget, command)
    print("All runs are finished." if is_finished else "Stopped at the budget: rerun the command to resume.")


if __name__ == "__main__":
    main()
