"""The commands and their options."""

import typer

from vsam.lab.cli.compare import compare
from vsam.lab.cli.lists import data, explain, methods, models, recipes
from vsam.lab.cli.quantized import quantized
from vsam.lab.cli.train import train

__all__ = ["app"]

app = typer.Typer(
    help="Train networks to flat minima at nearly the price of SGD.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (train, compare, methods, models, explain, recipes, data, quantized):
    app.command()(command)
