"""Where results go: tables to the standard output, files beside it, JSON to either."""

import json
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from vsam.lab.errors import UserError
from vsam.lab.files import make_folder, write_atomically

__all__ = ["check_file", "facts_text", "is_standard_output", "make_console", "show_json", "write_output"]


def make_console(width: int = 120) -> Console:
    """A console as wide as the terminal; elsewhere so wide that no cell is wrapped needlessly."""
    return Console(width=None if sys.stdout.isatty() else width, markup=False, highlight=False)


def facts_text(facts: Mapping[str, str]) -> str:
    """Names and, beside them, what there is to say, wrapped to the terminal's width; an empty name takes no place."""
    width, longest = min(shutil.get_terminal_size().columns, 100), max(map(len, facts))
    indent = " " * (longest + 2 if longest else 0)
    return "\n".join(
        textwrap.fill(line, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)
        for name, fact in facts.items()
        for start, line in zip((name.ljust(len(indent)), *[indent] * fact.count("\n")), fact.split("\n"), strict=True)
    )


def show_json(content: Any) -> None:
    """Print JSON for programs."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def is_standard_output(file: Path | None) -> bool:
    """Whether `-` was given as the name of a file."""
    return str(file) == "-"


def check_file(file: Path | None) -> None:
    """Refuse a file that cannot be written before anything is computed for it."""
    if file is None or is_standard_output(file):
        return
    make_folder(file.parent)
    if file.is_dir():
        raise UserError(f"{file} is a folder: give the name of a file.")


def write_output(file: Path | None, text: str) -> None:
    """Write a file, or the standard output for `-`; nothing where none was asked for."""
    if is_standard_output(file):
        sys.stdout.write(text)
    elif file is not None:
        make_folder(file.parent)
        write_atomically(file, text)
