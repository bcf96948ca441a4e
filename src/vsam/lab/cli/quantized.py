"""`vsam quantized`."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from vsam.lab.cli.options import DataDir, Device, Json, Use
from vsam.lab.cli.output import make_console, say, show_json
from vsam.lab.errors import RunError, UserError

__all__ = ["quantized"]

_ADVICE = "Train the run anew, or give another one."


def quantized(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was trained with quantize settings.")],
    json: Json = False,
    use: Use = None,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Show a quantized run's bits, sizes and accuracy."""
    from vsam.lab import models
    from vsam.lab.data import Batches
    from vsam.lab.recipes.recipe import check_recipe
    from vsam.lab.runs.environment import choose_device
    from vsam.lab.runs.network import evaluate, quantized_model
    from vsam.lab.runs.train import load_data
    from vsam.quantize import size_report

    content = _read(run)
    recipe = check_recipe(f"of {run}", content["recipe"])
    if recipe.quantize is None:
        setting = shlex.quote(f"quantize.checkpoint={run}/checkpoint.pt")
        raise UserError(f"{run} is a full-precision run. Train one with --set {setting}.")
    chosen = choose_device(device)
    dataset = load_data(recipe, data_dir, chosen)
    model = models.build(recipe.model, dataset.num_classes, dataset.image_shape[0])
    model = quantized_model(model, recipe)
    try:
        model.load_state_dict(content["model"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UserError(f"{run} holds other weights than those of its quantized {recipe.model}. {_ADVICE}") from error
    accuracy, _ = evaluate(model.to(chosen), Batches.test(dataset), chosen)
    report = size_report(model)
    if json:
        sizes = {"full_bytes": report.full_bytes, "quantized_bytes": report.quantized_bytes}
        layers = [asdict(layer) for layer in report.layers]
        return show_json({"layers": layers, **sizes, "step": content["step"], "accuracy": accuracy})
    table = Table(box=None, pad_edge=False)
    for heading in ("layer", "weight bits", "activation bits", "full bytes", "quantized bytes"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for layer in report.layers:
        numbers = (layer.weight_bits, layer.activation_bits, layer.full_bytes, layer.quantized_bytes)
        table.add_row(layer.name, *(f"{number:,}" for number in numbers))
    make_console().print(table)
    ratio = report.full_bytes / report.quantized_bytes
    say(f"In all {report.full_bytes:,} bytes become {report.quantized_bytes:,}, {ratio:.2f} times less.")
    say(f"Test accuracy at step {content['step']:,}: {accuracy:.2f} %.")
    return None


def _read(run: Path) -> dict[str, Any]:
    from vsam.lab.runs.checkpoint import load_checkpoint

    path = run / "checkpoint.pt"
    if not path.exists():
        raise UserError(f"{run} holds no checkpoint.pt: give the folder of a run.")
    try:
        content = load_checkpoint(path, advice=_ADVICE)
    except RunError as error:
        raise UserError(str(error)) from error
    for name, kind in (("recipe", dict), ("model", dict), ("step", int)):
        if not isinstance(content.get(name), kind):
            raise UserError(f"{path} is damaged: it holds no {name}. {_ADVICE}")
    return content
