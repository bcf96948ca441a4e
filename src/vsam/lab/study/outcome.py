"""The results of a study's runs: rows, the numbers per seed, tables and figures."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from vsam.lab.comparison.rows import Row
from vsam.lab.comparison.speed import seed_speed
from vsam.lab.comparison.tables import SPEEDS, latex_table, markdown_table, to_latex, to_markdown, to_terminal
from vsam.lab.paper.numbers import Published, references
from vsam.lab.runs.finished import FinishedRun
from vsam.lab.study.study import Scale, Study
from vsam.lab.text import for_terminal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PartOutcome", "TrainedOutcome", "markdown_page"]


@dataclass(frozen=True)
class PartOutcome:
    """The rows of one part, and the runs that they come from."""

    name: str
    rows: list[Row]
    runs: list[FinishedRun]

    @property
    def published(self) -> dict[str, Published]:
        """The paper's numbers by label, if the setting is the paper's."""
        return references({run.label: run.recipe for run in self.runs if run.recipe is not None})

    def of(self, label: str) -> list[FinishedRun]:
        """The runs of a row."""
        return [run for run in self.runs if run.label == label]


@dataclass(frozen=True)
class TrainedOutcome:
    """The results of a study that trains networks.

    Args:
        study: the study.
        scale: the scale it was run at.
        parts: in plan order; parts without a finished run are left out.
        failures: a sentence for each unfinished run.
        damaged: the folders of finished runs that have damaged files.
    """

    study: Study
    scale: Scale
    parts: list[PartOutcome]
    failures: list[str] = field(default_factory=list)
    damaged: list[Path] = field(default_factory=list)

    def table(self, part: PartOutcome) -> list[Row]:
        """A part's rows as a table shows them: each of vSAM's is named by what was varied."""
        values = {row.label: self._varied(part.of(row.label)[0]) for row in part.rows}
        named = {label: f"vsam {self.study.varied}={value:g}" for label, value in values.items() if value is not None}
        return [replace(row, label=named.get(row.label, row.label)) for row in part.rows]

    def tables(self) -> tuple[str, str]:
        """A table per part."""
        tables = {part.name: self.table(part) for part in self.parts}
        latex = [*map(to_latex, tables.values()), *(latex_table(one.lines) for one in self.study.tables(self._rows()))]
        return markdown_page(self.study, self.scale, tables, self._rows()), "\n".join(latex)

    def figures(self) -> "Mapping[str, Figure]":
        """As the study draws them."""
        return self.study.draw(self.study, self._rows(), {part.name: part.published for part in self.parts})

    def renderables(self) -> list[Any]:
        """A heading and a table per part, and a note on the speeds."""
        shown = [(f"{part.name}, scale {self.scale}", to_terminal(self.table(part))) for part in self.parts]
        more = [text for one in self.study.tables(self._rows()) for text in (one.title, _shown(one.lines), one.note)]
        return [*(one for pair in shown for one in pair), Text(SPEEDS), *more]

    def to_dict(self) -> dict[str, Any]:
        """The rows of a comparison, what was varied, and the numbers per seed."""
        summaries = [run.summary for part in self.parts for run in part.runs]
        environments = {json.dumps(s["environment"], sort_keys=True) for s in summaries if "environment" in s}
        return {
            "study": self.study.name,
            "scale": self.scale,
            "rows": (rows := self._rows()),
            **({"findings": self.study.findings(rows)} if self.study.findings else {}),
            "failures": self.failures,
            "training_seconds": sum(summary["seconds"] for summary in summaries),
            "environments": [json.loads(text) for text in sorted(environments)],
        }

    def _rows(self) -> list[dict[str, Any]]:
        return [self._record(part, row) for part in self.parts for row in part.rows]

    def _record(self, part: PartOutcome, row: Row) -> dict[str, Any]:
        runs = part.of(row.label)
        record: dict[str, Any] = row.to_dict()
        if self.study.varied is not None:
            record[self.study.varied] = self._varied(runs[0])
        return record | {
            "recipe": part.name,
            "noise": runs[0].recipe.data.noise if runs[0].recipe else 0.0,
            "label": row.label,
            "role": runs[0].facts.role,
            "speed_quartiles": row.quartiles,
            "seed_list": [run.seed for run in runs],
            "accuracies": [run.summary["accuracy"] for run in runs],
            "samples_each": [run.summary["samples"] for run in runs],
            "ais_each": [run.summary["ais"] for run in runs],
            "speed_to_sam_each": _speeds(runs, part.of("sam")),
            **self.study.columns(runs),
        }

    def _varied(self, run: FinishedRun) -> float | None:
        """The varied setting of a vSAM run."""
        if self.study.varied is None or run.method != "vsam" or run.recipe is None:
            return None
        return float(getattr(run.recipe.vsam, self.study.varied))


def markdown_page(study: Study, scale: str, tables: Mapping[str, Sequence[Row]], records: Sequence[Any]) -> str:
    """A study's page: a table per part, the study's other tables, and its notes."""
    sections = [f"# {study.title}\n\nScale: {scale}.\n"]
    sections += [f"## {part}\n\n{to_markdown(rows)}" for part, rows in tables.items()]
    sections += [f"## {one.title}\n\n{markdown_table(one.lines)}\n{one.note}\n" for one in study.tables(records)]
    return "\n".join(sections if study.notes is None else [*sections, study.notes(records)])


def _shown(lines: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(lines[0]):
        table.add_column(for_terminal(heading), justify="right" if place else "left")
    for line in lines[1:]:
        table.add_row(*map(for_terminal, line))
    return table


def _speeds(runs: Sequence[FinishedRun], references: Sequence[FinishedRun]) -> list[float | None]:
    """Each run's speed relative to SAM's of the same seed, if the two were timed together."""
    by_seed = {run.seed: run for run in references}
    return [seed_speed(run, by_seed[run.seed]) if run.seed in by_seed else None for run in runs]
