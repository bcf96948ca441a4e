"""`vsam sharpness`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from vsam.lab.cli.options import DataDir, Device, Json, Out, Use, folder, resumable
from vsam.lab.cli.output import make_console, say, show_json
from vsam.lab.cli.progress import make_status
from vsam.lab.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vsam.lab.runs.flatness import MeasuredRun

__all__ = ["sharpness"]

_DEFAULT_OUT = "sharpness"


def sharpness(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Folders of runs, folders that contain them at any depth, or checkpoints."),
    ],
    rho: Annotated[float | None, typer.Option("--rho", help="Radius. Default: 0.05; 0.5 if adaptive.")] = None,
    samples: Annotated[int, typer.Option("--samples", help="Maximum number of training images to use.")] = 1024,
    batch: Annotated[int, typer.Option("--batch", help="Batch size, the m of SAM's sharpness.")] = 128,
    mode: Annotated[
        Literal["eval", "train"], typer.Option("--mode", help="How BatchNorm and dropout behave.")
    ] = "eval",
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Scale perturbations by the weights, as ASAM.")] = False,
    density: Annotated[
        bool, typer.Option("--density", help="Also measure the spectral density of the Hessian.")
    ] = False,
    out: Out = None,
    landscape: Annotated[
        bool, typer.Option("--landscape", help="Also evaluate the loss on lines and planes; drawn to --out.")
    ] = False,
    between: Annotated[
        bool, typer.Option("--between", help="With --landscape: also the line from the first run to each other run.")
    ] = False,
    points: Annotated[int, typer.Option("--points", help="With --landscape: points per axis, an odd number.")] = 21,
    span: Annotated[float, typer.Option("--span", help="With --landscape: how far the axes extend each way.")] = 1.0,
    json: Json = False,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Measure how flat the minima of runs are, and draw it.

    The loss is the cross entropy on training images as they are stored, without augmentation or label smoothing, with
    the labels that the run was trained on. With --out, writes figures (SVG and PNG), all numbers (JSON) and an
    interactive page that works offline. Rerun the same command to resume a landscape.
    """
    if between and not landscape:
        raise UserError("--between is for --landscape: give both, or leave it out.")
    from vsam.lab.flatness.slices import cut
    from vsam.lab.flatness.texts import names_of
    from vsam.lab.runs.flatness import open_trained
    from vsam.lab.runs.trained import checkpoints_in

    target = folder(out) or (Path(_DEFAULT_OUT) if landscape else None)
    radius = rho if rho is not None else 0.5 if adaptive else 0.05
    what = ("top_eigenvalues", "trace", "ascent", "worst", "random", *(["density"] if density else []))
    slices = None
    with resumable(), make_status() as show:
        paths = list(dict.fromkeys(found for run in runs for found in checkpoints_in(run)))
        opened = [open_trained(path, samples, batch, data_dir, device) for path in paths]
        named = dict(zip(names_of(opened), opened, strict=True))
        if landscape:
            assert target is not None
            grids = target / "grids"
            slices = cut(named, grids, num_points=points, span=span, mode=mode, is_between=between, say=show)
        rows: dict[str, MeasuredRun] = {}
        for name, run in named.items():

            def progress(stage: str, done: int, total: int, name: str = name) -> None:
                show(f"{name}: {stage.replace('_', ' ')} {done} of {total}")

            rows[name] = run.measure(rho=radius, mode=mode, adaptive=adaptive, what=what, progress=progress)
        written = []
        if target is not None:
            from vsam.lab.flatness.write import write_pictures  # matplotlib takes a second to import

            show(f"Drawing to {target}")
            written = write_pictures(rows, slices, target)
    if json:
        return show_json([row.to_dict() for row in rows.values()])
    _show(rows)
    for path in written:
        say(path)
    return None


def _show(rows: "Mapping[str, MeasuredRun]") -> None:
    from vsam.lab.flatness.texts import MEASURES, cell, estimate_of, setting_of

    table = Table(box=None, pad_edge=False)
    for heading in ("run", "method", "loss", *map(_lower, MEASURES.values())):
        table.add_column(heading, justify="left" if heading in ("run", "method") else "right")
    for row in rows.values():
        numbers = [cell(estimate_of(row.found, name)) for name in MEASURES]
        table.add_row(str(row.path.parent), row.method, f"{row.found.loss:.4g}", *numbers)
    make_console(160).print(table)
    say(setting_of({name: row.found for name, row in rows.items()}))
    if any("*" in text for column in table.columns for text in map(str, column.cells)):
        say("* not converged")
    say("A smaller number is not a better network: sharpness predicts generalisation poorly (docs/flatness.md).")


def _lower(name: str) -> str:
    return name if name[:2].isupper() else name[0].lower() + name[1:]
