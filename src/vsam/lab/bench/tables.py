"""The report as tables, on the terminal and as Markdown."""

from dataclasses import dataclass

from rich.table import Table

from vsam.lab.bench.measure import Counted, Report
from vsam.lab.bench.memory import Memory
from vsam.lab.bench.results import Ratio, Row
from vsam.lab.bench.statistics import Spread
from vsam.lab.bench.workloads import WORKLOADS
from vsam.lab.comparison.tables import markdown_table

__all__ = ["READING", "Section", "sections", "to_markdown", "to_terminal"]

READING = (
    "CPU time of one thread; medians of interleaved rounds, quartiles in brackets. Added: the step minus its passes "
    "and the base's own step, which are timed within it. Best peer: the faster SAM of pytorch_optimizer; ± is "
    "half a 95 % interval, ≈ means that the difference is within the noise: not ranked. Goals are upper bounds, open "
    "if the interval contains them. ESAM's passes are not like SGD's, so nothing can be subtracted."
)


@dataclass(frozen=True)
class Section:
    """A table with a title; the first column is text, the others are numbers."""

    title: str
    headings: tuple[str, ...]
    lines: list[tuple[str, ...]]


def sections(report: Report) -> list[Section]:
    """Tables of times and counts per workload and base, and of memory per size."""
    found = []
    for workload in report.plan.workloads:
        for base in report.plan.bases:
            rows = [row for row in report.rows if (row.workload, row.base) == (workload, base)]
            counts = [one for one in report.counts if (one.workload, one.base) == (workload, base)]
            title = f"{workload} ({WORKLOADS[workload].summary}), base {base}"
            if rows:
                found.append(Section(f"Time: {title}", _TIMES, [_time_line(row) for row in rows]))
            if counts:
                found.append(Section(f"Counts per step: {title}", _COUNTS, [_count_line(one) for one in counts]))
    for size in dict.fromkeys(one.parameter_bytes for one in report.memory):
        own = [one for one in report.memory if one.parameter_bytes == size]
        title = f"Memory beyond the base alone, in multiples of the parameters ({size / 2**20:,.0f} MiB)"
        found.append(Section(title, _MEMORY, [_memory_line(one) for one in own]))
    return found


def to_terminal(section: Section) -> Table:
    """A table for a terminal."""
    table = Table(title=section.title, title_justify="left")
    for number, heading in enumerate(section.headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=number == 0)
    for line in section.lines:
        table.add_row(*line)
    return table


def to_markdown(section: Section) -> str:
    """The same table for a page."""
    return f"## {section.title}\n\n{markdown_table([section.headings, *section.lines])}"


_TIMES = ("method", "turns", "step ms", "base alone = 1", "added ms", "added, best peer = 1", "goal")
_COUNTS = ("method", "backward passes", "operators", "added", "Python calls", "added", "device syncs")
_MEMORY = ("method", "kept", "+ at the peak", "promised")


def _time_line(row: Row) -> tuple[str, ...]:
    return (
        row.label if row.method == "sgd" else f"{row.label}, {row.kind}",
        str(row.num_turns),
        _spread(row.step, 1e3, 2),
        _spread(row.to_base, 1, 2),
        "–" if row.added is None or row.method == "sgd" else _spread(row.added, 1e3, 2),
        _ratio(row),
        "" if row.goal is None else f"≤ {row.goal:.2f} {row.verdict or ''}".rstrip(),
    )


def _ratio(row: Row) -> str:
    ratio: Ratio | None = row.to_peer
    if ratio is None:
        return "–"
    if ratio.is_unit:
        return "1"
    if ratio.interval is None:
        return "noise"
    half = (ratio.interval[1] - ratio.interval[0]) / 2
    return f"{'' if ratio.is_ranked else '≈ '}{ratio.value:.2f} ± {half:.2f}"


def _spread(spread: Spread, scale: float, digits: int) -> str:
    low, high = (f"{scale * value:.{digits}f}" for value in (spread.low, spread.high))
    return f"{scale * spread.median:.{digits}f} ({low}–{high})"


def _count_line(one: Counted) -> tuple[str, ...]:
    added = one.added
    return (
        f"{one.label}, {one.kind}",
        str(one.counts.passes),
        f"{one.counts.operators:,}",
        "–" if added is None else f"{added.operators:,}",
        f"{one.counts.calls:,}",
        "–" if added is None else f"{added.calls:,}",
        str(one.counts.syncs),
    )


def _memory_line(one: Memory) -> tuple[str, ...]:
    promise = "–"
    if one.promise is not None:
        promise = f"{one.promise[0]} + {one.promise[1]}" + ("" if one.is_within_promise else ", exceeded")
    return one.method, f"{abs(one.kept):.2f}", f"{one.extra:.2f}", promise
