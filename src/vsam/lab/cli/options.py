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
from vsam.lab.plugins import use

__all__ = [
    "Changes",
    "DataDir",
    "Device",
    "Json",
    "JsonFile",
    "Out",
    "Ray",
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
    """An option of a command: its flag, what it does, and what the shell completes. `more` is typer's."""
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
Device = Annotated[str | None, option("--device", "cpu, cuda, cuda:1, mps. Default: the best available.")]
TensorBoard = Annotated[bool, option("--tensorboard", "Write TensorBoard logs too, to each run's folder tensorboard/.")]
Json = Annotated[bool, option("--json", "Print JSON instead of text.")]
JsonFile = Annotated[Path | None, option("--json", "Write the results as JSON; - for stdout.", metavar="FILE")]


def _import(files: list[Path] | None) -> list[Path] | None:
    for file in files or ():
        use(file)
    return files


Use = Annotated[
    list[Path] | None,
    option(
        "--use", "Import your own methods, models and datasets.", metavar="FILE.py", callback=_import, is_eager=True
    ),
]
Ray = Annotated[
    str | None, option("--ray", "Train the runs as Ray tasks, on a cluster or, with local, here.", metavar="ADDRESS")
]
Out = Annotated[str | None, option("--out", "Output folder.", metavar="FOLDER")]


_MOST_SEEDS = 1000


def check_seeds(seeds: int) -> None:
    """Reject a number of seeds that is probably a typo."""
    if not 1 <= seeds <= _MOST_SEEDS:
        least = "at least 1" if seeds < 1 else f"at most {_MOST_SEEDS:,}"
        raise UserError(f"--seeds must be {least}, got {seeds}.")


def folder(out: str | None) -> Path | None:
    """The folder that the user named, if any."""
    if out == "":
        raise UserError("--out must not be empty. Use . for the current folder.")
    return None if out is None else Path(out)


@contextmanager
def resumable() -> Iterator[None]:
    """Turn Ctrl-C into an error that says how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        raise RunError("Interrupted. Rerun the same command to resume.") from None


def typed_command() -> str:
    """The command line as typed, recorded in results. `python -m vsam` is `vsam`."""
    return shlex.join(["vsam", *sys.argv[1:]])
