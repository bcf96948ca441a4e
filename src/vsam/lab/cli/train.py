"""`vsam train`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vsam.lab.cli.options import Changes, DataDir, Device, Out, Tiny, Use, folder, resumable
from vsam.lab.cli.progress import make_progress
from vsam.lab.errors import UserError
from vsam.lab.recipes.load import load_recipe
from vsam.lab.runs.environment import choose_device
from vsam.lab.runs.folder import run_path
from vsam.lab.runs.train import Run, load_data

__all__ = ["train"]


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (see vsam recipes) or file.")] = "fashion-mini",
    out: Out = None,
    tiny: Tiny = False,
    changes: Changes = None,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs too.")] = False,
) -> None:
    """Train one recipe. A killed run goes on by the same command; a finished one changes nothing."""
    settings = load_recipe(recipe, tiny=tiny, changes=changes or ())
    chosen = choose_device(device)
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
            if tensorboard:
                run.listeners += (_tensorboard(path, run.step),)
            while run.step < run.total_steps:
                run.train_epoch(lambda step: progress.advance(method, seed, step))
        finally:
            run.close()
    typer.echo(f"{path}: {_result(run)}")


def _result(run: Run) -> str:
    summary = run.folder.summary
    assert summary is not None
    skips = f", {summary['skipped']:,} skipped as not finite" if summary["skipped"] else ""
    return (
        f"{summary['method']} reached {summary['accuracy']:.2f} % (best {summary['best']:.2f} %) with "
        f"{summary['samples']:,} second gradients in {summary['steps']:,} steps{skips}, {summary['ais']:,.0f} images/s."
    )


def _tensorboard(path: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ModuleNotFoundError as error:
        raise UserError("--tensorboard needs the package tensorboard: pip install 'vsam[lab,tensorboard]'.") from error
    writer = SummaryWriter(path / "tensorboard", purge_step=step + 1 if step else None)

    def write(metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            if name not in ("epoch", "step", "turn"):
                writer.add_scalar(name, value, metrics["step"])
        writer.flush()

    return write
