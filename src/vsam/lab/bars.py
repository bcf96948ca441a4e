"""Progress bars that fit the terminal: one line each, without cutting the bar or the time left."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

__all__ = ["bars_or_lines", "fit_name", "fit_note", "make_bars"]

Shown = TypeVar("Shown")

_NARROW = 100  # below this width a percentage replaces the step count
_PERCENT, _COUNT = len("100%"), len("9999999/9999999")
_TIME, _GAPS, _SHORTEST_BAR = len("99:59:59"), 4, 10
_SHORTEST_NAME, _USUAL_NOTE = 12, 20


@contextmanager
def bars_or_lines(bars: Callable[[Progress], Shown], lines: Callable[[], Shown]) -> Iterator[Shown]:
    """Show progress on stderr: bars on a terminal, else lines."""
    if not sys.stderr.isatty():
        yield lines()
        return
    with make_bars(Console(stderr=True)) as progress:
        yield bars(progress)


def make_bars(console: Console) -> Progress:
    """The bars: a name, the bar, its progress, the time left, and the field `note`."""
    column = Column(no_wrap=True)
    count: ProgressColumn = TaskProgressColumn("{task.percentage:>3.0f}%", table_column=column, markup=False)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        count if console.width < _NARROW else MofNCompleteColumn(table_column=column),
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=_TIME)),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
    )


def fit_name(progress: Progress, name: str) -> str:
    """A task's name, cut at the start if it would leave no room for a bar and a short note."""
    most = max(_SHORTEST_NAME, _room(progress) - _USUAL_NOTE)
    return name if len(name) <= most else f"…{name[1 - most :]}"


def fit_note(progress: Progress, parts: Sequence[str]) -> str:
    """As many parts of a note as fit next to the longest name; the first is cut if necessary."""
    room = max(1, _room(progress) - max((len(task.description) for task in progress.tasks), default=0))
    note, *others = parts
    if len(note) > room:
        return f"{note[: room - 1]}…"
    for part in others:
        if len(note) + 2 + len(part) <= room:
            note += f"  {part}"
    return note


def _room(progress: Progress) -> int:
    """Columns left for a name and a note."""
    width = progress.console.width
    return width - _SHORTEST_BAR - (_PERCENT if width < _NARROW else _COUNT) - _TIME - _GAPS
