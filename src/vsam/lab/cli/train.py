"""`vsam train`."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vsam.lab.cli.options import Changes, DataDir, Device, Out, RecipeName, TensorBoard, Tiny, Use, folder, resumable
from vsam.lab.cli.progress import make_progress

if TYPE_CHECKING:
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

    Rerun the same command to resume a killed run; a finished one is left as it is.
    """
    from vsam.lab.recipes.load import load_recipe
    from vsam.lab.runs.environment import choose_device
    from vsam.lab.runs.folder import run_path
    from vsam.lab.runs.tensorboard import observer
    from vsam.lab.runs.train import Run, load_data

    settings = load_recipe(recipe, tiny=tiny, changes=changes or ())
    chosen = choose_device(device)
    observe = observer(tensorboard)
    path = folder(out) or run_path(Path("runs"), settings)
    with resumable(), make_progress() as progress:
        run = Run(settings, path, load_data(settings, data_dir, chosen), chosen)
        try:
            if run.is_finished:
                typer.echo(f"{path} is finished: {_result(run)}")
                return
            if run.step:
                typer.echo(f"Going on at step {run.step} of {run.total_steps}.", err=True)
            method, seed = settings.method, settings.seed
            progress.begin([(method, seed, run.step, run.total_steps)])
            run.listeners = (lambda metrics: progress.epoch(method, seed, metrics),)
            observe(run)
            while run.step < run.total_steps:
                run.train_epoch(lambda step: progress.advance(method, seed, step))
        finally:
            run.close()
    typer.echo(f"{path}: {_result(run)}")


def _result(run: "Run") -> str:
    summary = run.folder.summary
    assert summary is not None
    skips = f", {summary['skipped']:,} skipped as not finite" if summary["skipped"] else ""
    return (
        f"{summary['method']} reached {summary['accuracy']:.2f} % (best {summary['best']:.2f} %) with "
        f"{summary['samples']:,} second gradients in {summary['steps']:,} steps{skips}, {summary['ais']:,.0f} images/s."
    )
