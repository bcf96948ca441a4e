"""The table of a comparison: on the terminal and in the report, and as JSON, CSV, Markdown and LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence

from rich.table import Table

from vsam.lab.recipes.recipe import BASES
from vsam.lab.rows import Row
from vsam.lab.run import Run
from vsam.lab.statistics import Interval
from vsam.lab.text import for_csv, for_latex, for_markdown, for_terminal, one_line

__all__ = [
    "NOTES",
    "WRITERS",
    "base_of",
    "cells",
    "latex_table",
    "markdown_table",
    "to_csv",
    "to_json",
    "to_latex",
    "to_markdown",
    "to_record",
    "to_terminal",
]

NOTES = (
    "Accuracy: last epoch. AIS: training images per second. Methods of a seed alternate epoch by epoch, and speeds "
    "compare epochs of the same turn, outliers clipped to the 10th–90th percentile; quartiles in brackets. ~: fewer "
    "than 20 common turns, AIS divided. Ideal: 2/passes per step. Difference: with its 95 % interval, paired by seed; "
    "* excludes 0."
)

_Column = tuple[str, Callable[[Row], str]]


def base_of(rows: Sequence[Row]) -> str | None:
    """Return the base optimizer's label, if it has a row."""
    return next((row.label for row in rows if row.method in BASES), None)


def cells(rows: Sequence[Row], *, quartiles: bool = False) -> list[list[str]]:
    """Return the table as text: a line of headings, then a line per row that starts with its label.

    Args:
        rows: at least one.
        quartiles: show those of the speeds too.
    """
    columns = _columns(rows, quartiles)
    return [[heading for heading, _ in columns], *([text(row) for _, text in columns] for row in rows)]


def to_terminal(rows: Sequence[Row]) -> Table:
    """Return the table for a terminal, with the spread of the speeds."""
    table = Table(title=for_terminal(_title(rows)), title_justify="left", box=None, padding=(0, 1, 0, 0))
    headings, *lines = cells(rows, quartiles=True)
    for heading in headings:
        is_name = heading == "method"
        words = for_terminal(heading.replace(" ", "\n", 1))
        # Other columns wrap if they do not fit.
        table.add_column(words, justify="left" if is_name else "right", no_wrap=is_name or heading == "2nd gradients")
    for line in lines:
        table.add_row(*map(for_terminal, line))
    return table


def to_json(rows: Sequence[Row]) -> str:
    """Return a list of objects, one per row."""
    return json.dumps([row.to_dict() for row in rows], indent=2) + "\n"


def to_record(command: str, rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """Return everything that a result must state: the command, the table, and each run's summary."""
    record = {
        "command": command,
        "rows": [row.to_dict() for row in rows],
        "speed_to_sgd_quartiles": {row.label: row.quartiles for row in rows},
        "training_seconds": sum(run.summary["seconds"] for run in runs),
        "runs": [run.summary for run in runs],
    }
    return json.dumps(record, indent=2) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """Return all numbers in full, one line per row."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0].to_dict()), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: for_csv(value) for name, value in row.to_dict().items()} for row in rows)
    return buffer.getvalue()


def to_markdown(rows: Sequence[Row], *, notes: bool = True) -> str:
    """Return a table for a README, with the notes on its columns if wanted."""
    lines = [list(map(for_markdown, line)) for line in cells(rows)]
    return f"{for_markdown(_title(rows))}\n\n{markdown_table(lines)}" + (f"\n{for_markdown(NOTES)}\n" if notes else "")


def to_latex(rows: Sequence[Row]) -> str:
    """Return a booktabs table for a paper."""
    return f"% {one_line(_title(rows))}\n% {NOTES}\n{latex_table(cells(rows))}"


def markdown_table(lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a heading and lines below it, verbatim. The first `left` columns are left-aligned."""
    head, *body = lines
    rule = [*["---"] * left, *["---:"] * (len(head) - left)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))


def latex_table(lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a heading and lines below it in booktabs, all plain text, with columns as above."""
    head, *body = map(_latex_line, lines)
    inner = "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])
    columns = "l" * left + "r" * (len(lines[0]) - left)
    return f"\\begin{{tabular}}{{{columns}}}\n{inner}\n\\end{{tabular}}\n"


WRITERS: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "json": to_json,
    "csv": to_csv,
    "markdown": to_markdown,
    "latex": to_latex,
}


def _columns(rows: Sequence[Row], quartiles: bool) -> list[_Column]:
    """Return the columns that the rows need: a heading, and a function from a row to its text."""
    base, differ = base_of(rows), len({row.seeds for row in rows}) > 1

    def with_range(text: str, quarters: tuple[float, float] | None) -> str:
        return f"{text} ({quarters[0]:.2f}–{quarters[1]:.2f})" if quartiles and quarters else text

    columns: list[_Column | None] = [
        ("method", lambda row: f"{row.label} (n = {row.seeds})" if differ else row.label),
        ("accuracy %", lambda row: _with_deviation(row.accuracy, row.accuracy_std, row.seeds)),
        ("averaged %", lambda row: _with_deviation(row.averaged, row.averaged_std, row.seeds))
        if any(row.averaged is not None for row in rows)
        else None,
        (f"difference to {base}", lambda row: _difference(row.to_base)) if any(row.to_base for row in rows) else None,
        ("best %", lambda row: _with_deviation(row.best, row.best_std, row.seeds)),
        ("2nd gradients", lambda row: f"{row.samples:,.1f}".removesuffix(".0")),
        ("AIS", lambda row: f"{row.ais:,.0f}"),
        ("of sam", lambda row: _ratio(row.ais_ratio_to_sam, row.quartiles_to_sam))
        if any(row.ais_ratio_to_sam is not None for row in rows)
        else None,
        (f"of {base}", lambda row: with_range(_ratio(row.speed_to_sgd, row.quartiles), row.quartiles))
        if base is not None
        else None,
        ("ideal of sam", lambda row: f"{row.ideal_ratio:.2f}"),
    ]
    return [column for column in columns if column is not None]


def _title(rows: Sequence[Row]) -> str:
    seeds = sorted({row.seeds for row in rows})
    counts = " or ".join(str(count) for count in seeds)
    return f"{rows[0].model} on {rows[0].data}, {rows[0].steps:,} steps, {counts} seed{'s' if seeds != [1] else ''}"


def _with_deviation(mean: float | None, deviation: float | None, seeds: int) -> str:
    if mean is None:
        return "–"
    return f"{mean:.2f} ± {deviation:.2f}" if seeds > 1 and deviation is not None else f"{mean:.2f}"


def _difference(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    return interval.starred(2)


def _ratio(value: float | None, quartiles: tuple[float, float] | None) -> str:
    return "–" if value is None else f"{'' if quartiles else '~'}{value:.2f}"


def _latex_line(cells: Sequence[str]) -> str:
    line = " & ".join(map(for_latex, cells)) + r" \\"
    # The end of the previous row would take such a start as its argument.
    return f"{{}}{line}" if line.startswith(("[", "*")) else line
