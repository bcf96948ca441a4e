"""`vsam train`."""

from pathlib import Path
from typing import TYPE_CHECKING

from vsam.lab.cli.options import Changes, DataDir, Device, Out, RecipeName, TensorBoard, Tiny, Use, folder, resumable
from vsam.lab.cli.output import say
from vsam.lab.cli.progress import make_progress
from vsam.lab.errors import RunError

if TYPE_CHECKING:
    from vsam.lab.comparison.progress import Progress
    from vsam.lab.runs.tensorboard import Observe
    from vsam.lab.runs.train import Run

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

    Rerun the same command to resume a killed run; a finished run is left unchanged.
    """
    from vsam.lab.ranks.join import choose_rank_device, join
    from vsam.lab.recipes.load import load_recipe
    from vsam.lab.runs.folder import run_path
    from vsam.lab.runs.tensorboard import observer
    from vsam.lab.runs.train import Run, load_data

    settings = load_recipe(recipe, tiny=tiny, changes=changes or ())
    chosen = choose_rank_device(device)
    observe = observer(tensorboard)
    path = folder(out) or run_path(Path("runs"), settings)
    with resumable():
        dataset = load_data(settings, data_dir, chosen)
        with join(chosen) as ranks, make_progress(is_shown=ranks.is_first) as progress:
            run = Run(settings, path, dataset, chosen, ranks=ranks)
            try:
                said = f"{path} is finished: {_result(run)}" if run.is_finished else None
                if said is None:
                    _train(run, progress, observe)
                    said = f"{path}: {_result(run)}"
            finally:
                run.close()
    if ranks.is_first:
        say(said)
    if run.folder.problems:
        raise RunError(f"The run's files are damaged (see above). Delete {path} to retrain it.")


def _train(run: "Run", progress: "Progress", observe: "Observe") -> None:
    if run.step and run.ranks.is_first:
        say(f"Resuming at step {run.step} of {run.total_steps}.", err=True)
    method, seed = run.recipe.method, run.recipe.seed
    progress.begin([(method, seed, run.step, run.total_steps)])
    run.listeners = (lambda metrics: progress.epoch(method, seed, metrics),)
    if run.ranks.is_first:
        observe(run)
    while run.step < run.total_steps:
        run.train_epoch(lambda step: progress.advance(method, seed, step))


def _result(run: "Run") -> str:
    summary = run.folder.summary
    assert summary is not None
    skips = f", {summary['skipped']:,} skipped as non-finite" if summary["skipped"] else ""
    return (
        f"{summary['method']} reached {summary['accuracy']:.2f} % (best {summary['best']:.2f} %) with "
        f"{summary['samples']:,} second gradients in {summary['steps']:,} steps{skips}, {summary['ais']:,.0f} images/s"
        f"{f' on {ranks} processes' if (ranks := summary.get('ranks', 1)) > 1 else ''}."
    )
