"""The lines of a group's table, with the paper's numbers beside ours where the setting is the paper's."""

from collections.abc import Mapping
from dataclasses import dataclass

from vsam.lab.comparison.rows import Row
from vsam.lab.paper.numbers import Published, references
from vsam.lab.report.groups import Group

__all__ = ["HEADINGS", "PAPER_HEADINGS", "Line", "published_numbers", "result_lines"]

HEADINGS = (
    "accuracy,\u00a0%",
    "best epoch,\u00a0%",
    "second gradients",
    "images per second",
    "speed, SAM\u00a0=\u00a01",
    "speed, SGD\u00a0=\u00a01",
    "ideal speed, SAM\u00a0=\u00a01",
)
PAPER_HEADINGS = ("best epoch,\u00a0%", "second gradients", "images per second", "speed, SAM\u00a0=\u00a01")
Cell = tuple[str, str]


@dataclass(frozen=True)
class Line:
    """A method's line: texts, each with what stands small behind it.

    Args:
        label: of the method.
        seeds: how many, where lines differ in that; else 0.
        ours: our numbers.
        papers: the paper's.
    """

    label: str
    seeds: int
    ours: list[Cell]
    papers: list[Cell]


def published_numbers(group: Group) -> dict[str, Published]:
    """The paper's numbers by label, for those runs whose setting is the paper's; it has none for held-out images."""
    if group.is_validation:
        return {}
    return references({run.label: run.recipe for run in group.finished if run.recipe is not None})


def result_lines(group: Group, published: Mapping[str, Published]) -> list[Line]:
    """A line for each row of the group."""
    differ = len({row.seeds for row in group.rows}) > 1
    return [
        Line(row.label, row.seeds if differ else 0, _ours(row), _papers(published.get(row.label))) for row in group.rows
    ]


def _ours(row: Row) -> list[Cell]:
    has_spread = row.seeds > 1
    quartiles = f"{row.quartiles[0]:.2f}–{row.quartiles[1]:.2f}" if row.quartiles else ""
    return [
        (_accuracy(row.accuracy, row.accuracy_std if has_spread else None), ""),
        (_accuracy(row.best, row.best_std if has_spread else None), ""),
        (f"{row.samples:,.1f}".removesuffix(".0"), f"{row.samples / row.steps:.0%}"),
        (f"{row.ais:,.0f}", ""),
        (_ratio(row.ais_ratio_to_sam, "" if row.quartiles_to_sam else "~"), ""),
        (_ratio(row.speed_to_sgd, "" if row.quartiles else "~"), quartiles),
        (f"{row.ideal_ratio:.2f}", ""),
    ]


def _papers(numbers: Published | None) -> list[Cell]:
    if numbers is None:
        return [("–", "")] * len(PAPER_HEADINGS)
    texts = [
        _accuracy(numbers.accuracy, numbers.std),
        "–" if numbers.samples is None else f"{numbers.samples:,}",
        "–" if numbers.ais is None else f"{numbers.ais:,.0f}",
        _ratio(None if numbers.of_sam is None else numbers.of_sam / 100, ""),
    ]
    return [(text, "") for text in texts]


def _accuracy(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def _ratio(value: float | None, apart: str) -> str:
    return "–" if value is None else f"{apart}{value:.2f}"
