"""The study of Lemma 2, as the command runs, shows and writes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsam.lab.comparison.progress import Progress
from vsam.lab.comparison.tables import latex_table, markdown_table
from vsam.lab.study.convergence.average import SCHEDULES, Row, convergence_figure, reading, run_convergence, slope
from vsam.lab.study.convergence.descent import METHODS
from vsam.lab.study.study import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MeasuredOutcome", "measure_convergence"]


@dataclass(frozen=True)
class MeasuredOutcome:
    """What was measured, as in the study's JSON file."""

    content: dict[str, Any]
    failures: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The study in plain types."""
        return self.content

    def tables(self) -> tuple[str, str]:
        """A line per schedule and method with the averages over T; on the page also the findings in sentences."""
        rows = self.content["rows"]
        scale = f"Scale: {self.content['scale']}. {rows[0]['seeds']} seeds, mean ± deviation."
        lines, sentences = _lines(rows), "".join(f"- {sentence}\n" for sentence in reading(rows))
        page = f"# The average of Lemma 2 over T\n\n{scale}\n\n{markdown_table(lines, left=2)}\n{sentences}"
        return page, latex_table(lines, left=2)

    def figures(self) -> "dict[str, Figure]":
        """One figure with a panel per schedule."""
        return {"convergence": convergence_figure(self.content["rows"])}

    def renderables(self) -> list[Any]:
        """One sentence per schedule."""
        return list(reading(self.content["rows"]))


def measure_convergence(scale: Scale, out: Path, progress: Progress) -> MeasuredOutcome:
    """Measure what is missing, showing all cells as one run."""
    begun: list[int] = []

    def show(cell: str, done: int, total: int) -> None:
        if not begun:
            begun.append(done)
            progress.begin([("convergence", 0, done, total)])
        progress.advance("convergence", 0, done)

    return MeasuredOutcome(run_convergence(scale, out, show))


def _lines(rows: Sequence[Row]) -> list[list[str]]:
    horizons = list(dict.fromkeys(row["horizon"] for row in rows))
    lines = [["learning rate", "method", *(f"T = {horizon:,}" for horizon in horizons), "power of T"]]
    for schedule in SCHEDULES:
        for method in METHODS:
            own = [row for row in rows if (row["schedule"], row["method"]) == (schedule.name, method)]
            averages = [f"{row['average']:.1e} ± {row['average_std']:.0e}" for row in own]
            lines.append([schedule.title, method, *averages, f"{slope(rows, schedule.name, method):+.2f}"])
    return lines
