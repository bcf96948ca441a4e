"""`vsam sharpness`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from vsam.lab.cli.options import DataDir, Device, Json, Use
from vsam.lab.cli.output import make_console, say, show_json
from vsam.lab.cli.progress import make_status

if TYPE_CHECKING:
    from vsam.sharpness import Estimate

__all__ = ["sharpness"]


def sharpness(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Folders of runs, folders that contain them at any depth, or checkpoints."),
    ],
    rho: Annotated[float | None, typer.Option("--rho", help="The distance. Default: 0.05, adaptive 0.5.")] = None,
    samples: Annotated[int, typer.Option("--samples", help="Training images to measure on, at most.")] = 1024,
    batch: Annotated[int, typer.Option("--batch", help="Batch size, the m of SAM's sharpness.")] = 128,
    mode: Annotated[
        Literal["eval", "train"], typer.Option("--mode", help="How BatchNorm and dropout behave.")
    ] = "eval",
    adaptive: Annotated[bool, typer.Option("--adaptive", help="In units of the weights, as ASAM does.")] = False,
    json: Json = False,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Measure how flat the minima of runs are.

    The loss is the cross entropy on training images as they are stored, without augmentation or label smoothing, with
    the labels that the run was trained on.
    """
    from vsam.lab.runs.flatness import measure_run
    from vsam.lab.runs.trained import checkpoints_in

    radius = rho if rho is not None else 0.5 if adaptive else 0.05
    options = {"rho": radius, "mode": mode, "adaptive": adaptive}
    rows = []
    with make_status() as show:
        for path in [found for run in runs for found in checkpoints_in(run)]:

            def progress(stage: str, done: int, total: int, path: Path = path) -> None:
                show(f"{path.parent}: {stage.replace('_', ' ')} {done} of {total}")

            rows.append(measure_run(path, samples, batch, data_dir, device, progress=progress, **options))
    if json:
        return show_json([row.to_dict() for row in rows])
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "method", "loss", *_COLUMNS.values()):
        table.add_column(heading, justify="left" if heading in ("run", "method") else "right")
    for row in rows:
        numbers = [_cell(getattr(row.found, name)) for name in _COLUMNS]
        table.add_row(str(row.path.parent), row.method, f"{row.found.loss:.4g}", *numbers)
    make_console(160).print(table)
    found = rows[0].found
    say(
        f"On {found.num_samples:,} training images at rho = {radius:g}, m = {batch}{', adaptive' if adaptive else ''}; "
        f"BatchNorm and dropout as in {'evaluation' if mode == 'eval' else 'training'}."
    )
    if any("*" in cell for column in table.columns for cell in map(str, column.cells)):
        say("* not converged")
    say("A smaller number is not a better network: sharpness predicts generalisation poorly (docs/flatness.md).")
    return None


_COLUMNS = {
    "top_eigenvalues": "top eigenvalue",
    "trace": "trace",
    "batch_ascent": "SAM's sharpness",
    "ascent": "ascent",
    "worst": "worst",
    "random": "random",
}


def _cell(found: Any) -> str:
    one: Estimate = found if hasattr(found, "value") else found[0]
    return f"{one.value:.3g} ± {one.error:.2g}{'' if one.converged else '*'}"
