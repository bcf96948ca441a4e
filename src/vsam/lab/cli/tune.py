"""`vsam tune`."""

import logging
import shlex
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vsam.lab.cli import complete, options
from vsam.lab.cli.options import option
from vsam.lab.cli.output import say
from vsam.lab.errors import RunError, UserError, install_line
from vsam.lab.files import write_atomically

if TYPE_CHECKING:
    from vsam.lab.tune.outcome import Row
    from vsam.lab.tune.search import Search

__all__ = ["tune"]


def tune(
    recipe: options.RecipeName = "fashion-mini",
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
    out: options.Out = None,
    tiny: options.Tiny = False,
    changes: options.Changes = None,
    use: options.Use = None,
    data_dir: options.DataDir = None,
    device: options.Device = None,
    tensorboard: options.TensorBoard = False,
) -> None:
    """Tune a method's settings on held-out images.

    The images are held out from the training set. Rerun the same command to resume a killed search.
    """
    if trials < 1:
        raise UserError(f"--trials must be at least 1, got {trials}.")
    options.check_seeds(seeds)
    if timeout is not None and not timeout > 0:
        raise UserError(f"--timeout must be above 0 minutes, got {timeout:g}.")
    if storage == "":
        raise UserError("--storage must not be empty. Leave it out to keep the search in its folder.")
    _quieten_optuna()
    from vsam.lab.compare import count_steps
    from vsam.lab.data.validation import hold_out
    from vsam.lab.environment import choose_device
    from vsam.lab.learner import build_model
    from vsam.lab.methods.build import build_optimizer
    from vsam.lab.progress import make_progress
    from vsam.lab.recipes.load import load_recipe
    from vsam.lab.tensorboard import observer
    from vsam.lab.train import load_data
    from vsam.lab.tune.outcome import rows_of
    from vsam.lab.tune.search import Search
    from vsam.lab.tune.space import choose_space

    if method is not None and any(change.partition("=")[0].strip() == "method" for change in changes or ()):
        raise UserError("The method is given twice, by --method and by --set. Leave one out.")
    given = [*(changes or ()), *([f"method={method}"] if method else [])]
    settings = load_recipe(recipe, tiny=tiny, changes=given)
    space = choose_space(search, lambda more: load_recipe(recipe, tiny=tiny, changes=[*given, *more]))
    chosen, observe = choose_device(device), observer(tensorboard)
    target = options.folder(out) or Path("tune") / settings.name / settings.label
    dataset = load_data(settings, data_dir, chosen)
    steps = count_steps(settings, dataset)
    build_optimizer(build_model(settings, dataset), settings, steps)  # fails before a folder is created
    deadline = None if timeout is None else time.monotonic() + 60 * timeout
    with (
        options.resumable(),
        closing(Search(settings, space, seeds, target, hold_out(dataset), chosen, storage, observe)) as work,
        make_progress() as progress,
    ):
        num_trained = work.run(trials, progress, deadline)
        rows = rows_of(work)
        _write(work, rows)
    _report(work, trials, rows, num_trained)


def _quieten_optuna() -> None:
    try:
        import optuna
        import sqlalchemy  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"vsam tune needs {error.name}: {install_line('lab', 'tune')}.") from error
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL)


def _write(search: "Search", rows: "Sequence[Row]") -> None:
    from vsam.lab.tune.outcome import best_first, draw, to_json, to_recipe

    words = shlex.split(options.typed_command())
    place = words.index("--storage") if "--storage" in words else len(words)
    del words[place : place + 2]  # its URL may contain a password
    command = shlex.join(word for word in words if not word.startswith("--storage="))
    _replace(search.folder / "trials.json", to_json(search, command, rows).encode())
    if best_first(rows):
        _replace(search.folder / "best.toml", to_recipe(search, command, rows).encode())
        _replace(search.folder / "trials.png", draw(search))


def _replace(path: Path, content: bytes) -> None:
    """Write only if the content changed, so that a finished search changes nothing."""
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


def _report(search: "Search", trials: int, rows: "Sequence[Row]", num_trained: int) -> None:
    from vsam.lab.tune.outcome import best_first, caution, count_states, standing

    num_over = sum(row["state"] in ("complete", "pruned", "failed") for row in rows)
    is_finished = num_over >= trials
    say(f"{search.folder}{' is finished' if is_finished and not num_trained else ''}: {count_states(rows)}.")
    if best_first(rows):
        say(standing(search, rows))
        say(caution(search, rows))
        say(f"Picture: {search.folder / 'trials.png'}\nRecipe: {search.folder / 'best.toml'}")
    elif is_finished:
        reasons = [f"trial {row['number']}: {row['error'] or row['state']}" for row in rows]
        raise RunError(f"None of {num_over} trials completed:\n  " + "\n  ".join(reasons))
    if not is_finished:
        left = trials - num_over
        say(f"Not finished: {left} {'trial' if left == 1 else 'trials'} left. Rerun the same command to resume.")
