"""`vsam report`."""

from pathlib import Path
from typing import Annotated

import typer

from vsam.lab.cli.output import say
from vsam.lab.files import is_standard_output
from vsam.lab.progress import make_status

__all__ = ["report"]


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS", help="Folders of runs, or folders that contain them at any depth.")
    ],
    output: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write; - for stdout.")
    ] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="The page's title. Default: what was run.")] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Write the figures and tables for papers too.")
    ] = True,
) -> None:
    """Write one page with tables and figures of runs.

    The page works offline. The same figures (SVG, PNG) and tables (Markdown, LaTeX) go to a folder next to it, named
    after the page: report-figures for report.html.
    """
    from vsam.lab.report.write import write_report  # matplotlib takes a second to import

    with make_status() as show:
        files = write_report(runs, output, title=title, figures=figures, say=show)
    for problem in files.problems:
        say(f"Note: {problem}", err=True)
    finished = f"{files.num_finished} finished run{'s' if files.num_finished != 1 else ''}"
    say(f"{files.page}: {finished}", err=is_standard_output(output))
    if files.others:
        say(f"{files.others[0].parent}: {len(files.others)} figures and tables")
