"""What a study is: its plan, the additional columns of its record, and how it is drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from vsam.lab.comparison.progress import Progress
from vsam.lab.paper.numbers import Published
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.finished import FinishedRun

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

__all__ = ["SCALES", "SEEDS", "Outcome", "Part", "Scale", "Study", "Table"]

Scale = Literal["tiny", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SEEDS: dict[Scale, int] = {"tiny": 1, "small": 3, "paper": 3}

Record = Mapping[str, Any]
PublishedByPart = Mapping[str, Mapping[str, Published]]


@dataclass(frozen=True)
class Part:
    """Runs of one network on one dataset, whose rows are compared with each other.

    Args:
        name: of the recipe that they share.
        recipes: one per run.
    """

    name: str
    recipes: tuple[Recipe, ...]


@dataclass(frozen=True)
class Table:
    """An additional table of a study.

    Args:
        title: above it.
        lines: the heading and the lines below it, as strings.
        note: below it, or "".
    """

    title: str
    lines: Sequence[Sequence[str]]
    note: str = ""


class Outcome(Protocol):
    """The results of a study, however it was run."""

    @property
    def failures(self) -> list[str]:
        """A sentence for each unfinished run."""

    def to_dict(self) -> dict[str, Any]:
        """The study in plain types."""

    def tables(self) -> tuple[str, str]:
        """Its tables as Markdown and as LaTeX."""

    def figures(self) -> "Mapping[str, Figure]":
        """Its figures by file name."""

    def renderables(self) -> list[Any]:
        """What a terminal shows; strings are printed as lines."""


def speed_figures(study: "Study", rows: Sequence[Record], published: PublishedByPart) -> "dict[str, Figure]":
    """Accuracy against speed, one figure per part with more than one row."""
    from vsam.lab.study.figures import speed_figure  # matplotlib takes a second to import

    by_part = {
        part: [row for row in rows if row["recipe"] == part] for part in dict.fromkeys(r["recipe"] for r in rows)
    }
    return {
        f"{study.name}-{part}": speed_figure(part, own, published.get(part, {}))
        for part, own in by_part.items()
        if len(own) > 1
    }


def _no_columns(runs: Sequence[FinishedRun]) -> Record:
    return {}


@dataclass(frozen=True)
class Study:
    """One table or figure.

    Args:
        name: on the command line.
        title: what it shows, and which part of the paper that is.
        plan: its parts in the order in which they must run, from the scale, the number of seeds and the runs' folder;
            none if it trains no network.
        varied: the setting of vSAM that it varies, if any.
        columns: additional columns of a row of its record, from the row's runs.
        draw: its figures by name, from its record and the paper's numbers by part and label.
        is_quantized: whether its runs are of quantized networks, which count only for the claims about those.
        measure: how it is measured if it trains no network.
        notes: what its page says besides the tables, in Markdown, from its record.
        num_seeds: its default number of seeds if it is not the scale's; tiny studies use one.
        after: called once the runs are trained, with these, the scale, data directory and device: it measures and
            writes files next to the runs, which `columns` reads, and returns a sentence for each failure.
        findings: what follows from the rows, for the record.
        tables: additional tables, from the rows.
    """

    name: str
    title: str
    plan: Callable[[Scale, int, Path], list[Part]] = lambda scale, seeds, runs: []
    varied: str | None = None
    columns: Callable[[Sequence[FinishedRun]], Record] = _no_columns
    draw: "Callable[[Study, Sequence[Record], PublishedByPart], dict[str, Figure]]" = speed_figures
    is_quantized: bool = False
    measure: Callable[[Scale, Path, Progress], Outcome] | None = field(default=None)
    after: "Callable[[Sequence[FinishedRun], Scale, Path | None, torch.device, Progress], list[str]] | None" = None
    findings: Callable[[Sequence[Record]], Record] | None = None
    tables: Callable[[Sequence[Record]], list[Table]] = lambda rows: []
    notes: Callable[[Sequence[Record]], str] | None = None
    num_seeds: int | None = None

    def seeds_at(self, scale: Scale) -> int:
        """The default number of seeds."""
        return SEEDS[scale] if self.num_seeds is None or scale == "tiny" else self.num_seeds
