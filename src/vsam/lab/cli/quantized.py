"""`vsam quantized`."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vsam.lab.cli.options import DataDir, Device, Json, Use
from vsam.lab.cli.output import make_console, say, show_json
from vsam.lab.errors import UserError

__all__ = ["quantized"]


def quantized(
    run: Annotated[Path, typer.Argument(help="Folder of a run trained with quantize settings.")],
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
    from vsam.lab.runs.trained import ADVICE, checkpoint_of, read_trained
    from vsam.quantize import size_report

    content = read_trained(checkpoint_of(run))
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
        raise UserError(f"The weights in {run} do not match its quantized {recipe.model}. {ADVICE}") from error
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
    say(f"Total: {report.full_bytes:,} bytes become {report.quantized_bytes:,}, {ratio:.2f} times smaller.")
    say(f"Test accuracy at step {content['step']:,}: {accuracy:.2f} %.")
    return None
