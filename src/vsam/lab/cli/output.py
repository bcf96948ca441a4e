"""Print texts, tables and JSON."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from vsam.lab.errors import RunError
from vsam.lab.text import for_terminal

__all__ = ["check_runs", "facts_text", "make_console", "say", "show_json", "show_table"]


def say(text: object, *, err: bool = False) -> None:
    """Print text to stdout or stderr, without control characters."""
    typer.echo(for_terminal(text).plain, err=err)


def make_console(width: int = 120) -> Console:
    """Return a console as wide as the terminal, or `width` columns wide if stdout is redirected."""
    return Console(width=None if sys.stdout.isatty() else width, markup=False, highlight=False)


def facts_text(facts: Mapping[str, str]) -> str:
    """Two columns, names and facts, wrapped to the terminal's width. Empty names take no space."""
    width, longest = min(shutil.get_terminal_size().columns, 100), max(map(len, facts))
    indent = " " * (longest + 2 if longest else 0)
    return "\n".join(
        textwrap.fill(line, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)
        for name, fact in facts.items()
        for start, line in zip((name.ljust(len(indent)), *[indent] * fact.count("\n")), fact.split("\n"), strict=True)
    )


def check_runs(failures: Sequence[str], damaged: Sequence[object]) -> None:
    """Raise, once everything was shown, if runs are unfinished or finished runs have damaged files."""
    said = []
    if failures:
        said.append("These runs are not finished:\n  " + "\n  ".join(failures))
    if damaged:
        folders = "\n  ".join(map(str, damaged))
        said.append(
            "These finished runs have damaged files; their rows come from summary.json. Delete a "
            f"folder to retrain its run:\n  {folders}"
        )
    if said:
        raise RunError("\n".join(said))


def show_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of text. Names in the first column are never broken, so that they can be copied."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading == headings[0])
    for row in rows:
        table.add_row(*map(for_terminal, row))
    make_console(160).print(table)


def show_json(content: Any) -> None:
    """Print JSON."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
