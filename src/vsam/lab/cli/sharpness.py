"""`vsam sharpness`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vsam.lab.cli.options import DataDir, Device, Json, Out, Use, folder, resumable
from vsam.lab.cli.output import say, show_json, show_table
from vsam.lab.errors import UserError
from vsam.lab.progress import make_status

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
    the labels that the run was trained on. With --out, writes figures (SVG and PNG), all numbers (JSON) and a page
    that works offline. Rerun the same command to resume a landscape.
    """
    if between and not landscape:
        raise UserError("--between is for --landscape: give both, or leave it out.")
    from vsam.lab.sharpness import checkpoints_in, cut, draw, names_of, open_trained, table

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
            shared: Any = {"num_points": points, "span": span, "mode": mode, "is_between": between, "say": show}
            slices = cut(named, target / "grids", **shared)
        rows = {}
        for name, run in named.items():

            def progress(stage: str, done: int, total: int, name: str = name) -> None:
                show(f"{name}: {stage.replace('_', ' ')} {done} of {total}")

            rows[name] = run.measure(rho=radius, mode=mode, adaptive=adaptive, what=what, progress=progress)
        show(f"Drawing to {target}")
        written = draw(rows, slices, target) if target is not None else []
    if json:
        return show_json([row.to_dict() for row in rows.values()])
    (headings, *lines), note = table(rows)
    show_table(headings, lines)
    for text in (note, *written):
        say(text)
    return None
