"""The tables for papers and READMEs: ours as in a comparison, the paper's numbers below in a marked table."""

from collections.abc import Mapping, Sequence

from vsam.lab.comparison import tables
from vsam.lab.comparison.rows import Row
from vsam.lab.paper.numbers import Published
from vsam.lab.text import for_markdown

__all__ = ["paper_cells", "to_latex", "to_markdown"]

_HEADINGS = ("method", "best %", "2nd gradients", "AIS", "of SAM")
_NOTE = "The paper's numbers for the same setting, not ours: best epoch, AIS on an RTX 3090"


def to_markdown(rows: Sequence[Row], published: Mapping[str, Published]) -> str:
    """Our rows, and the paper's numbers in a separate table."""
    text = tables.to_markdown(rows)
    if published:
        text += f"\n{_NOTE}\n\n" + tables.markdown_table(
            [_HEADINGS, *(list(map(for_markdown, line)) for line in _papers(published))]
        )
    return text


def to_latex(rows: Sequence[Row], published: Mapping[str, Published]) -> str:
    """Our rows, and the paper's numbers in a separate table."""
    text = tables.to_latex(rows)
    if published:
        text += f"% {_NOTE}\n" + tables.latex_table([_HEADINGS, *_papers(published)])
    return text


def paper_cells(numbers: Published | None) -> list[str]:
    """The paper's numbers for a method, as text."""
    if numbers is None:
        return ["–"] * (len(_HEADINGS) - 1)
    return [
        f"{numbers.accuracy:.2f}" + ("" if numbers.std is None else f" ± {numbers.std:.2f}"),
        "–" if numbers.samples is None else f"{numbers.samples:,}",
        "–" if numbers.ais is None else f"{numbers.ais:,.0f}",
        "–" if numbers.of_sam is None else f"{numbers.of_sam / 100:.2f}",
    ]


def _papers(published: Mapping[str, Published]) -> list[list[str]]:
    return [[label, *paper_cells(numbers)] for label, numbers in published.items()]
