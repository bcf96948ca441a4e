"""`vsam tune`."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vsam.lab.cli import complete
from vsam.lab.cli.options import (
    Changes,
    DataDir,
    Device,
    Out,
    RecipeName,
    TensorBoard,
    Tiny,
    Use,
    check_seeds,
    folder,
    option,
    resumable,
)
from vsam.lab.cli.output import say
from vsam.lab.errors import RunError, UserError
from vsam.lab.files import write_atomically

if TYPE_CHECKING:
    from vsam.lab.tune.plan import Plan
    from vsam.lab.tune.results import Result

__all__ = ["tune"]


def tune(
    recipe: RecipeName = "fashion-mini",
    method: Annotated[
        str | None, option("--method", "Method whose settings are searched. Default: the recipe's.", complete.method)
    ] = None,
    trials: Annotated[int, option("--trials", "Total number of trials, including earlier calls.")] = 20,
    search: Annotated[
        str | None,
        option(
            "--search",
            "Comma-separated KEY=LOW:HIGH or KEY=LOW:HIGH:log. Default: the method's ranges.",
            metavar="RANGES",
        ),
    ] = None,
    seeds: Annotated[int, option("--seeds", "Seeds per trial; their mean counts.")] = 1,
    storage: Annotated[
        str | None, option("--storage", "Database for sharing the search.", metavar="URL", envvar="VSAM_STORAGE")
    ] = None,
    timeout: Annotated[
        float | None, option("--timeout", "Stop after this long; rerun the command to resume.", metavar="MINUTES")
    ] = None,
    out: Out = None,
    tiny: Tiny = False,
    changes: Changes = None,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Tune a method's settings on held-out images.

    The images are held out from the training set. Rerun the same command to resume a killed search.
    """
    if trials < 1:
        raise UserError(f"--trials must be at least 1, got {trials}.")
    check_seeds(seeds)
    if timeout is not None and not timeout > 0:
        raise UserError(f"--timeout must be above 0 minutes, got {timeout:g}.")
    if storage == "":
        raise UserError("--storage must not be empty. Leave it out to keep the search in its folder.")
    _quieten_optuna()
    from vsam.lab.data.validation import hold_out
    from vsam.lab.methods.build import build_optimizer
    from vsam.lab.runs.environment import choose_device
    from vsam.lab.runs.network import build_model
    from vsam.lab.runs.tensorboard import observer
    from vsam.lab.runs.train import load_data
    from vsam.lab.tune.plan import make_plan
    from vsam.lab.tune.progress import make_watcher
    from vsam.lab.tune.search import Search

    plan = make_plan(recipe, method=method, search=search, seeds=seeds, tiny=tiny, changes=changes or ())
    chosen, observe = choose_device(device), observer(tensorboard)
    target = folder(out) or Path("tune") / plan.recipe.name / plan.recipe.label
    dataset = load_data(plan.recipe, data_dir, chosen)
    build_optimizer(build_model(plan.recipe, dataset), plan.recipe, 1)  # fails before a folder is created
    dataset = hold_out(dataset)
    deadline = None if timeout is None else time.monotonic() + 60 * timeout
    with resumable():
        work = Search(plan, target, dataset, chosen, trials, storage, deadline, observe)
        with make_watcher() as watcher:
            num_trained = work.run(watcher)
        with work.results() as results:
            _write(plan, target, trials, results, len(dataset.test_images))
    _report(plan, target, trials, results, len(dataset.test_images), num_trained)


def _quieten_optuna() -> None:
    try:
        import optuna
        import sqlalchemy  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"vsam tune needs {error.name}: pip install 'vsam[lab,tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)


def _write(plan: "Plan", target: Path, trials: int, results: Sequence["Result"], num_validation: int) -> None:
    from vsam.lab.tune.best import to_recipe
    from vsam.lab.tune.results import best_first, to_csv, to_json

    command = plan.command(max(trials, len(results)))
    _replace(target / "trials.json", to_json(plan, command, results, num_validation).encode())
    _replace(target / "trials.csv", to_csv(plan, results).encode())
    if best_first(results):
        from vsam.lab.tune.picture import accuracy_against_settings  # matplotlib takes a second to import

        _replace(target / "best.toml", to_recipe(plan, command, results, num_validation).encode())
        _replace(target / "trials.png", accuracy_against_settings(plan, results, num_validation))


def _replace(path: Path, content: bytes) -> None:
    """Write only if the content changed, so that a finished search changes nothing."""
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


def _report(
    plan: "Plan", target: Path, trials: int, results: Sequence["Result"], num_validation: int, num_trained: int
) -> None:
    from vsam.lab.tune.best import caution, standing
    from vsam.lab.tune.results import best_first, count_states

    num_over = sum(result.is_over for result in results)
    is_finished = num_over >= trials
    say(f"{target}{' is finished' if is_finished and not num_trained else ''}: {count_states(results)}.")
    if best_first(results):
        say(standing(plan, results, num_validation))
        say(caution(plan, results, num_validation))
        say(f"Picture: {target / 'trials.png'}\nRecipe: {target / 'best.toml'}")
    elif is_finished:
        reasons = [f"trial {result.number}: {result.error or result.state}" for result in results]
        raise RunError(f"None of {num_over} trials completed:\n  " + "\n  ".join(reasons))
    if not is_finished:
        left, running = trials - num_over, sum(result.state == "running" for result in results)
        are = "trial" if left == 1 else "trials"
        by = "another process" if running == 1 else "other processes"
        elsewhere = f", {running} running in {by}" if running else ""
        say(f"Not finished: {left} {are} left{elsewhere}. Rerun the same command to resume.")
