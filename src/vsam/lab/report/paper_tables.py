"""The tables for papers and READMEs: ours by the comparison's writers, and the paper's below, apart and marked."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from vsam.lab.comparison import tables
from vsam.lab.comparison.rows import Row
from vsam.lab.paper.numbers import Published

__all__ = ["to_latex", "to_markdown"]

_HEADINGS = ("method", "best %", "2nd gradients", "AIS", "of SAM")
_NOTE = "The paper's numbers for the same setting, not ours: best epoch, AIS on an RTX 3090"
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: rf"\{sign}" for sign in "&$#_{}"},
}


def to_markdown(rows: Sequence[Row], published: Mapping[str, Published]) -> str:
    """Our rows, and the paper's numbers in a table of their own."""
    text = tables.to_markdown(_escaped(rows, _for_markdown))
    if published:
        text += f"\n{_NOTE}\n\n" + tables.markdown_table([_HEADINGS, *_papers(published, "±", _for_markdown)])
    return text


def to_latex(rows: Sequence[Row], published: Mapping[str, Published]) -> str:
    """Our rows, and the paper's numbers in a table of their own."""
    text = tables.to_latex(_escaped(rows, _for_latex))
    if published:
        text += f"% {_NOTE}\n" + tables.latex_table([_HEADINGS, *_papers(published, r"$\pm$", _for_latex)])
    return text


def _escaped(rows: Sequence[Row], escape: Callable[[str], str]) -> list[Row]:
    return [replace(row, label=escape(row.label), model=escape(row.model), data=escape(row.data)) for row in rows]


def _papers(published: Mapping[str, Published], sign: str, escape: Callable[[str], str]) -> list[tuple[str, ...]]:
    return [
        (
            escape(label),
            f"{numbers.accuracy:.2f}" + ("" if numbers.std is None else f" {sign} {numbers.std:.2f}"),
            "–" if numbers.samples is None else f"{numbers.samples:,}",
            "–" if numbers.ais is None else f"{numbers.ais:,.0f}",
            "–" if numbers.of_sam is None else f"{numbers.of_sam / 100:.2f}",
        )
        for label, numbers in published.items()
    ]


def _for_markdown(name: str) -> str:
    return re.sub(r"([\\`*_{}\[\]|#!])", r"\\\1", html.escape(name, quote=False))


def _for_latex(name: str) -> str:
    """All but %, which the writers escape."""
    return "".join(_LATEX.get(sign, sign) for sign in name)
