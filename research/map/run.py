"""The runs of the map: how much sharpness-aware methods gain, over settings that overfit more or less.

python -m research.map.run --jobs 2            run all missing runs, setting by setting
python -m research.map.run --budget 1.5        start no run after an hour and a half
python -m research.map.run --setting NAME      run one setting

The rules are in plan.toml, written before the runs. Every finished run is a line of results/SETTING.jsonl. Rerun the
same command to resume.
"""

import argparse
import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
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
from vsam.lab.errors import DamagedError, InUseError, RunError, UserError
from vsam.lab.files import make_folder, write_atomically

__all__ = ["main", "read_results", "run_study"]


def read_results(out: Path, setting: Setting) -> Results:
    """Return the finished runs of a setting."""
    path, results = out / f"{setting.name}.jsonl", Results()
    for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else (), start=1):
        try:
            results.add(json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedError(f"{path}, line {number}, is not a finished run: delete it to repeat the run.") from error
    return results


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
    running: dict[Future[dict[str, Any]], tuple[Setting, Run]] = {}

    def record(future: Future[dict[str, Any]]) -> None:
        setting, run = running.pop(future)
        found = future.result()
        done[setting.name].add({"run": asdict(run), **found, "environment": about})
        write_atomically(out / f"{setting.name}.jsonl", done[setting.name].text())
        _print_run(run, found)

    try:
        with FileLock(out / ".lock", timeout=0), _pool(jobs) as pool:
            done = {setting.name: read_results(out, setting) for setting in settings}
            try:
                while True:
                    while (
                        len(running) < jobs
                        and time.monotonic() < deadline
                        and (following := _following(plan, settings, done, [run for _, run in running.values()]))
                    ):
                        running[pool.submit(train, *following, data_dir)] = following
                    if not running:
                        return _following(plan, settings, done, ()) is None
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        record(future)
            finally:  # a failed run does not discard the others
                for future in wait(running).done:
                    if future.exception() is None:
                        record(future)
    except Timeout as error:
        raise InUseError(f"{out} is in use by another process. Wait for it, or choose another --out.") from error


def _pool(jobs: int) -> Executor:
    """Return an executor. A single job runs in this process, so that killing it kills the run."""
    if jobs == 1:
        return ThreadPoolExecutor(1)
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,))


def _following(
    plan: Plan, settings: Sequence[Setting], done: Mapping[str, Results], running: Collection[Run]
) -> tuple[Setting, Run] | None:
    """Return the first run that can start now. The additional seeds follow after all settings."""
    for all_seeds in (False, True):
        for setting in settings:
            for run in plan.due(setting, done[setting.name], all_seeds=all_seeds):
                if run not in running:
                    return setting, run
    return None


def _print_run(run: Run, found: dict[str, Any]) -> None:
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
    if not given.budget >= 0:
        parser.error(f"--budget is a number of hours, 0 or more, got {given.budget:g}")
    wanted = [plan.settings[name] for name in given.setting or plan.settings]
    command = f"python -m research.map.run --jobs {given.jobs}"
    try:
        is_finished = run_study(plan, wanted, given.out, given.data_dir, given.jobs, given.budget, command)
    except (UserError, RunError, OSError) as error:
        sys.exit(f"Error: {error}")
    print("All runs are finished." if is_finished else "Stopped at the budget: rerun the command to resume.")


if __name__ == "__main__":
    main()
