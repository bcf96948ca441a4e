"""`vsam report`."""

from pathlib import Path
from typing import Annotated

import typer

from vsam.lab.cli.options import Use
from vsam.lab.cli.progress import make_status

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="Folders of runs, or folders that contain them at any depth.")
    ],
    output: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option("--title", help="The page's title. Default: what was run.")] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Write the figures and tables for papers too.")
    ] = True,
    use: Use = None,
) -> None:
    """Write one page with tables and figures of runs.

    It is interactive and opens without a network. Beside it, in a folder of the same name, are the figures as SVG and
    PNG and the tables as Markdown and LaTeX.
    """
    from vsam.lab.report import write_report  # what it draws with takes a second to import

    with make_status() as say:
        files = write_report(runs, output, title=title, figures=figures, say=say)
    for problem in files.problems:
        typer.echo(f"Note: {problem}", err=True)
    finished = f"{files.num_finished} finished run{'s' if files.num_finished != 1 else ''}"
    typer.echo(f"{files.page}: {finished}")
    if files.figures or files.tables:
        folder = (files.figures or files.tables)[0].parent
        typer.echo(f"{folder}: {len(files.figures)} figures, {len(files.tables)} tables")
