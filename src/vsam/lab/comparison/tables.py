"""The comparison's table: on the terminal, and as JSON, CSV, Markdown and LaTeX."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.table import Table

from vsam.lab.comparison.rows import Row
from vsam.lab.runs.finished import FinishedRun
from vsam.lab.text import for_csv, for_latex, for_markdown, for_terminal, one_line

__all__ = [
    "SPEEDS",
    "WRITERS",
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

SPEEDS = (
    "AIS: training images per second. Methods of a seed alternate epoch by epoch, and speeds compare epochs of the "
    "same turn, outliers clipped to the 10th–90th percentile; quartiles in brackets. ~: fewer than 20 common turns, "
    "AIS divided. Accuracy: last epoch. Ideal: 2/passes per step."
)

_APART = "~: not timed in turns, AIS divided"
_HEADINGS = ("method", "accuracy %", "best %", "2nd gradients", "AIS", "of SAM", "of SGD", "ideal of SAM")


def to_terminal(rows: Sequence[Row]) -> Table:
    """The table for a terminal, with the spread of the speeds."""
    table = Table(title=for_terminal(_title(rows)), title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in _HEADINGS:
        is_long = heading in ("2nd gradients", "ideal of SAM")
        words = heading.replace(" ", "\n", 1) if is_long else heading
        is_whole = heading in ("method", "2nd gradients")  # other columns wrap if they do not fit
        table.add_column(words, justify="left" if heading == "method" else "right", no_wrap=is_whole)
    for row in _counted(rows):
        table.add_row(*map(for_terminal, cells(row, quartiles=True)))
    return table


def to_json(rows: Sequence[Row]) -> str:
    """A list of objects, one per row."""
    return json.dumps([row.to_dict() for row in rows], indent=2) + "\n"


def to_record(command: str, rows: Sequence[Row], runs: Sequence[FinishedRun]) -> str:
    """Everything a result must state: the command, the table, and each run's summary."""
    record = {
        "command": command,
        "rows": [row.to_dict() for row in rows],
        "speed_to_sgd_quartiles": {row.label: row.quartiles for row in rows},
        "training_seconds": sum(run.summary["seconds"] for run in runs),
        "runs": [run.summary for run in runs],
    }
    return json.dumps(record, indent=2) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """All numbers in full, one line per row."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0].to_dict()), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: for_csv(value) for name, value in row.to_dict().items()} for row in rows)
    return buffer.getvalue()


def to_markdown(rows: Sequence[Row]) -> str:
    """A table for a README."""
    table = markdown_table([_HEADINGS, *([for_markdown(cell) for cell in cells(row)] for row in _counted(rows))])
    note = f"\n{_APART}.\n" if _is_apart(rows) else ""
    return f"{for_markdown(_title(rows))}\n\n{table}{note}"


def to_latex(rows: Sequence[Row]) -> str:
    """A booktabs table for a paper."""
    table = latex_table([_HEADINGS, *map(cells, _counted(rows))])
    note = f"% {_APART}\n" if _is_apart(rows) else ""
    return f"% {one_line(_title(rows))}\n{note}{table}"


def markdown_table(lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """A heading and lines below it, verbatim; the first `left` columns are left-aligned, the others right-aligned."""
    head, *body = lines
    rule = [*["---"] * left, *["---:"] * (len(head) - left)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *body))


def latex_table(lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """A heading and lines below it in booktabs, all plain text; columns as above."""
    head, *body = map(_latex_line, lines)
    inner = "\n".join([r"\toprule", head, r"\midrule", *body, r"\bottomrule"])
    columns = "l" * left + "r" * (len(lines[0]) - left)
    return f"\\begin{{tabular}}{{{columns}}}\n{inner}\n\\end{{tabular}}\n"


def _latex_line(cells: Sequence[str]) -> str:
    line = " & ".join(map(for_latex, cells)) + r" \\"
    # The end of the previous row would take such a start as its argument.
    return f"{{}}{line}" if line.startswith(("[", "*")) else line


WRITERS: dict[str, Callable[[Sequence[Row]], str]] = {
    "json": to_json,
    "csv": to_csv,
    "markdown": to_markdown,
    "latex": to_latex,
}


def _title(rows: Sequence[Row]) -> str:
    seeds = sorted({row.seeds for row in rows})
    counts = " or ".join(str(count) for count in seeds)
    return f"{rows[0].model} on {rows[0].data}, {rows[0].steps:,} steps, {counts} seed{'s' if seeds != [1] else ''}"


def _counted(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows, each with its number of seeds if they differ."""
    if len({row.seeds for row in rows}) == 1:
        return rows
    return [replace(row, label=f"{row.label} (n = {row.seeds})") for row in rows]


def _is_apart(rows: Sequence[Row]) -> bool:
    """Whether any speed was not timed in turns."""
    ratios = [(row.ais_ratio_to_sam, row.quartiles_to_sam) for row in rows]
    ratios += [(row.speed_to_sgd, row.quartiles) for row in rows]
    return any(value is not None and not quartiles for value, quartiles in ratios)


def cells(row: Row, *, quartiles: bool = False) -> tuple[str, ...]:
    """A row's texts, its label first."""
    return (
        row.label,
        _with_deviation(row.accuracy, row.accuracy_std, row.seeds),
        _with_deviation(row.best, row.best_std, row.seeds),
        f"{row.samples:,.1f}".removesuffix(".0"),
        f"{row.ais:,.0f}",
        _ratio(row.ais_ratio_to_sam, row.quartiles_to_sam),
        _ratio(row.speed_to_sgd, row.quartiles) + (_range(row.quartiles) if quartiles else ""),
        f"{row.ideal_ratio:.2f}",
    )


def _with_deviation(mean: float, deviation: float, seeds: int) -> str:
    return f"{mean:.2f} ± {deviation:.2f}" if seeds > 1 else f"{mean:.2f}"


def _ratio(value: float | None, quartiles: tuple[float, float] | None) -> str:
    return "–" if value is None else f"{'' if quartiles else '~'}{value:.2f}"


def _range(quartiles: tuple[float, float] | None) -> str:
    return "" if quartiles is None else f" ({quartiles[0]:.2f}–{quartiles[1]:.2f})"
