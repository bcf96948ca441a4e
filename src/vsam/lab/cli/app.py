"""The commands and their options."""

from typing import Annotated

import typer

import vsam
from vsam.lab.cli.bench import bench
from vsam.lab.cli.compare import compare
from vsam.lab.cli.lists import data, explain, methods, models, recipes
from vsam.lab.cli.quantized import quantized
from vsam.lab.cli.report import report
from vsam.lab.cli.study import study
from vsam.lab.cli.train import train
from vsam.lab.cli.tune import tune

__all__ = ["app"]

app = typer.Typer(
    help="Train networks to flat minima at nearly the price of SGD.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"vsam {vsam.__version__}")
        raise typer.Exit


for command in (train, compare, study, report, tune, bench, methods, models, explain, recipes, data, quantized):
    app.command()(command)
