"""The commands and their options."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from vsam.lab.cli.check import check
from vsam.lab.cli.compare import compare
from vsam.lab.cli.lists import data, explain, methods, models, recipes
from vsam.lab.cli.report import report
from vsam.lab.cli.sharpness import sharpness
from vsam.lab.cli.study import study
from vsam.lab.cli.train import train
from vsam.lab.cli.tune import tune
from vsam.lab.torchrun import check_command
from vsam.version import __version__

__all__ = ["app"]

app = typer.Typer(
    help="Sharpness-aware training at a cost that you choose.",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"vsam {__version__}")
        raise typer.Exit
    check_command(context.invoked_subcommand)


def _interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that Ctrl-C ends it with one line where it has no better message, as during imports."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(1) from None

    return run


_TRAINING = (train, compare, study, report, tune, sharpness, check)
for command in (*_TRAINING, methods, models, recipes, data, explain):
    app.command()(_interruptible(command))
