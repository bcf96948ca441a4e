"""`vsam train`."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsam.lab.cli.options import Changes, DataDir, Device, Out, RecipeName, TensorBoard, Tiny, Use, folder, resumable
from vsam.lab.cli.output import say
from vsam.lab.errors import RunError
from vsam.lab.progress import Shown, make_progress

if TYPE_CHECKING:
    from vsam.lab.recipes.recipe import Recipe
    from vsam.lab.tensorboard import Observe
    from vsam.lab.train import Trainer

__all__ = ["train"]


def train(
    recipe: RecipeName = "fashion-mini",
    out: Out = None,
    tiny: Tiny = False,
    changes: Changes = None,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
    tensorboard: TensorBoard = False,
) -> None:
    """Train one recipe.

    Rerun the same command to resume a killed run. A finished run is left unchanged.
    """
    from vsam.lab.ranks.join import choose_rank_device, join
    from vsam.lab.recipes.load import load_recipe
    from vsam.lab.run import run_path
    from vsam.lab.tensorboard import observer
    from vsam.lab.train import Trainer, load_data

    settings = load_recipe(recipe, tiny=tiny, changes=changes or ())
    chosen = choose_rank_device(device)
    observe = observer(tensorboard)
    path = folder(out) or run_path(Path("runs"), settings)
    with resumable(), join(chosen) as ranks, make_progress(is_shown=ranks.is_first) as progress:
        summary, problem = ranks.from_first(lambda: _read(path, settings))
        said = f"{path} is finished"
        if not summary:
            dataset = load_data(settings, data_dir, chosen)
            with closing(Trainer(settings, path, dataset, chosen, ranks)) as run:
                _train(run, progress, observe)
                summary, said = run.summary, str(path)
    if ranks.is_first:
        say(f"{said}: {_result(summary)}")
    if problem:
        raise RunError(f"{path}: {problem} Delete it to retrain the run.")


def _read(path: Path, settings: "Recipe") -> tuple[dict[str, Any], str]:
    """Return the summary of a finished run with these settings, and what is wrong with its other files."""
    from vsam.lab.run import check_settings, read_run

    found = read_run(path)
    check_settings(found, settings)
    return found.summary, found.problem if found.is_finished else ""


def _train(run: "Trainer", progress: Shown, observe: "Observe") -> None:
    if run.step and run.ranks.is_first:
        say(f"Resuming at step {run.step} of {run.total_steps}.", err=True)
    label, seed = run.recipe.label, run.recipe.seed
    progress.begin([(label, seed, run.step, run.total_steps)])
    run.listeners.append(lambda metrics: progress.epoch(label, seed, metrics))
    if run.ranks.is_first:
        observe(run)
    while run.step < run.total_steps:
        run.train_epoch(lambda step: progress.advance(label, seed, step))


def _result(summary: Mapping[str, Any]) -> str:
    skips = f", {summary['skipped']:,} skipped as non-finite" if summary["skipped"] else ""
    averaged = f", {summary['averaged_accuracy']:.2f} % averaged" if "averaged_accuracy" in summary else ""
    processes = f" on {ranks} processes" if (ranks := summary.get("ranks", 1)) > 1 else ""
    return (
        f"{summary['method']} reached {summary['accuracy']:.2f} % (best {summary['best']:.2f} %{averaged}) with "
        f"{summary['samples']:,} second gradients in {summary['steps']:,} steps{skips}, {summary['ais']:,.0f} images/s"
        f"{processes}."
    )
