"""A page of tables and figures: one HTML file that works offline and loads nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

import vsam
from vsam.lab.report.figures import PALETTE, Styles, svg
from vsam.lab.text import printable

__all__ = ["Details", "Panel", "Panels", "Section", "Table", "render"]

# The browser blocks every request the page could make.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class Panel:
    """A figure.

    Args:
        name: for its files.
        title: above it.
        figure: from `vsam.lab.report.figures`.
        words: its numbers in words, for screen readers.
    """

    name: str
    title: str
    figure: Figure
    words: str


@dataclass(frozen=True)
class Panels:
    """Figures side by side, as far as the screen allows."""

    kind: ClassVar = "panels"
    title: str
    panels: Sequence[Panel]
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table that sorts by any column.

    Args:
        title: above it.
        lines: a line of headings, then lines of as many cells.
        labels: of the lines, if each is about one method.
        note: below it.
    """

    kind: ClassVar = "table"
    title: str
    lines: Sequence[Sequence[str]]
    labels: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True)
class Details:
    """Headings that open on a click, each with a text, verbatim."""

    kind: ClassVar = "details"
    title: str
    entries: Sequence[tuple[str, str]]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Args:
        slug: its anchor.
        title: its heading.
        lead: its result in a sentence.
        small: what was run, in small print.
        blocks: tables, figures and details, in order.
        badge: beside the heading.
    """

    slug: str
    title: str
    lead: str = ""
    small: str = ""
    blocks: Sequence[Panels | Table | Details] = ()
    badge: str = ""

    @property
    def panels(self) -> list[Panel]:
        """All figures."""
        return [panel for block in self.blocks if isinstance(block, Panels) for panel in block.panels]


def render(title: str, lead: str, small: str, sections: Sequence[Section], styles: Styles) -> str:
    """Return the page.

    Args:
        title: its heading.
        lead: the result in a sentence.
        small: below it, in small print.
        sections: in order.
        styles: of all labels. Each can be switched off.
    """
    environment = Environment(
        loader=PackageLoader("vsam.lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    return environment.get_template("template.html").render(
        title=title,
        lead=lead,
        small=small,
        sections=sections,
        styles=styles,
        palette=PALETTE,
        policy=_POLICY,
        version=vsam.__version__,
        svg=lambda panel: Markup(svg(panel.figure, styles, panel.name)),
    )


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else printable(value)
