"""What a study is: its plan, what its record holds besides a comparison's rows, and how that is drawn."""

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
    """Runs of one network on one data set, whose rows are compared with each other.

    Args:
        name: of the recipe that they share.
        recipes: one a run.
    """

    name: str
    recipes: tuple[Recipe, ...]


@dataclass(frozen=True)
class Table:
    """A further table of a study.

    Args:
        title: above it.
        lines: the heading and the lines below it, as texts.
        note: below it, or "".
    """

    title: str
    lines: Sequence[Sequence[str]]
    note: str = ""


class Outcome(Protocol):
    """What came out of a study, however it was run."""

    @property
    def failures(self) -> list[str]:
        """A sentence for each run that is not finished."""

    def to_dict(self) -> dict[str, Any]:
        """The study as programs read it."""

    def tables(self) -> tuple[str, str]:
        """Its tables as Markdown and as LaTeX."""

    def figures(self) -> "Mapping[str, Figure]":
        """Its figures by the names of their files."""

    def renderables(self) -> list[Any]:
        """What a terminal shows of it; texts that are no renderables are lines."""


def speed_figures(study: "Study", rows: Sequence[Record], published: PublishedByPart) -> "dict[str, Figure]":
    """Accuracy against speed, a figure for each part with more than one row."""
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
        name: by which the command knows it.
        title: what it shows, and which part of the paper that is.
        plan: its parts in the order in which they must run, from the scale, the number of seeds and the runs' folder;
            none where it trains no network.
        varied: the setting of vSAM that it varies, if it does.
        columns: what a row of its record holds besides, from the row's runs.
        draw: its figures by name, from its record and the paper's numbers by part and label.
        is_quantized: whether its runs are of quantized networks, which speak only to the claims about those.
        measure: how it is measured where it trains no network.
        notes: what its page says besides the tables, in Markdown, from its record.
        num_seeds: how many seeds it takes by itself where that is not the scale's usual number; tiny ones take one.
        after: called when the runs are trained, with these, the scale and where data and device are: it measures and
            writes files beside the runs, which `columns` reads, and returns a sentence for each failure.
        findings: what follows from the rows, for the record.
        tables: further tables, from the rows.
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
        """How many seeds it takes where nobody says."""
        return SEEDS[scale] if self.num_seeds is None or scale == "tiny" else self.num_seeds
