"""The study of Lemma 2 as the command runs, shows and writes it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsam.lab.comparison.progress import Progress
from vsam.lab.study.convergence.average import convergence_figure, reading, run_convergence
from vsam.lab.study.convergence.tables import to_latex, to_markdown
from vsam.lab.study.study import Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MeasuredOutcome", "measure_convergence"]


@dataclass(frozen=True)
class MeasuredOutcome:
    """What was measured, as the study's JSON file holds it."""

    content: dict[str, Any]
    failures: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The study as programs read it."""
        return self.content

    def tables(self) -> tuple[str, str]:
        """The averages over T."""
        rows = self.content["rows"]
        scale = f"Scale: {self.content['scale']}. {rows[0]['seeds']} seeds, mean ± deviation."
        return f"# The average of Lemma 2 over T\n\n{scale}\n\n{to_markdown(rows)}", to_latex(rows)

    def figures(self) -> "dict[str, Figure]":
        """One figure with a panel a schedule."""
        return {"convergence": convergence_figure(self.content["rows"])}

    def renderables(self) -> list[Any]:
        """A sentence a schedule."""
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
