"""Options that several commands share."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from vsam.lab.cli import complete
from vsam.lab.errors import RunError, UserError
from vsam.lab.own import use

__all__ = [
    "Changes",
    "DataDir",
    "Device",
    "Json",
    "JsonFile",
    "Out",
    "RecipeName",
    "TensorBoard",
    "Tiny",
    "Use",
    "check_seeds",
    "folder",
    "option",
    "resumable",
    "typed_command",
]


def option(flag: str, help: str, found: Callable[[str], complete.Found] | None = None, **more: Any) -> Any:
    """An option of a command: its flag, what it does, and what the shell completes; `more` is typer's."""
    return typer.Option(flag, help=help, autocompletion=found, **more)


RecipeName = Annotated[
    str, typer.Argument(help="A recipe's name (see vsam recipes) or file.", autocompletion=complete.recipes)
]
Changes = Annotated[
    list[str] | None,
    option(
        "--set", "Change a setting; dots reach into tables. May be repeated.", complete.settings, metavar="KEY=VALUE"
    ),
]
Tiny = Annotated[bool, option("--tiny", "Shrink the recipe to a run of seconds.")]
DataDir = Annotated[Path | None, option("--data-dir", "Dataset directory. Default: $VSAM_DATA, else the user's cache.")]
Device = Annotated[str | None, option("--device", "cpu, cuda, cuda:1, mps. Default: the best there is.")]
TensorBoard = Annotated[bool, option("--tensorboard", "Write TensorBoard logs too, to each run's folder tensorboard/.")]
Json = Annotated[bool, option("--json", "Print JSON instead, for programs.")]
JsonFile = Annotated[
    Path | None, option("--json", "Write the results as JSON; - for the standard output.", metavar="FILE")
]


def _import(files: list[Path] | None) -> list[Path] | None:
    for file in files or ():
        use(file)
    return files


Use = Annotated[
    list[Path] | None,
    option("--use", "Import methods, models and data of your own.", metavar="FILE.py", callback=_import, is_eager=True),
]
Out = Annotated[str | None, option("--out", "The folder to write to.", metavar="FOLDER")]


_MOST_SEEDS = 1000


def check_seeds(seeds: int) -> None:
    """Refuse a number of seeds that is a slip of the finger."""
    if not 1 <= seeds <= _MOST_SEEDS:
        least = "at least 1" if seeds < 1 else f"at most {_MOST_SEEDS:,}"
        raise UserError(f"--seeds must be {least}, got {seeds}.")


def folder(out: str | None) -> Path | None:
    """The folder that the user named, if any."""
    if out == "":
        raise UserError("--out must not be empty. Write . for this folder.")
    return None if out is None else Path(out)


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C into a sentence that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise RunError("Interrupted. Run the same command again: it goes on from where it was saved.") from None


def typed_command() -> str:
    """What the user typed, for results to state."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
