"""The table of a group, with the paper's numbers beside ours where the setting is the paper's."""

from collections.abc import Mapping

from vsam.lab.comparison.rows import Row
from vsam.lab.paper.numbers import Published, references
from vsam.lab.report.groups import Group
from vsam.lab.report.page.markup import table, text
from vsam.lab.report.style import Style

__all__ = ["published_numbers", "results_table", "swatch"]

_OURS = ("accuracy,\u00a0%", "best,\u00a0%", "second gradients", "AIS", "of SAM", "of SGD", "ideal of SAM")
_SHAPES = {
    "circle": "M9 6a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "square": "M9 1h10v10h-10z",
    "diamond": "M14 0l6 6l-6 6l-6 -6z",
    "triangle-up": "M14 0l6 11h-12z",
    "cross": "M12 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
    "star": "M14 0l1.5 4h4.3l-3.4 2.7l1.3 4.5l-3.7 -2.7l-3.7 2.7l1.3 -4.5l-3.4 -2.7h4.3z",
}
_PAPERS = ("best,\u00a0%", "second gradients", "AIS", "of SAM")


def published_numbers(group: Group) -> dict[str, Published]:
    """The paper's numbers by label, for those runs whose setting is the paper's; it has none for held-out images."""
    if group.is_validation:
        return {}
    return references({run.label: run.recipe for run in group.finished if run.recipe is not None})


def results_table(group: Group, styles: Mapping[str, Style], published: Mapping[str, Published]) -> str:
    """The table as HTML."""
    seeds = {row.seeds for row in group.rows}
    spread = "Mean ± standard deviation over seeds." if max(seeds) > 1 else "One seed, so no deviation is known."
    caption = f"<strong>{text(group.title)}</strong>, recipe {text(group.recipe)}. {spread}"
    counts = [f" <small>n = {row.seeds}</small>" if len(seeds) > 1 else "" for row in group.rows]
    names = [_name(row.label, styles[row.label]) for row in group.rows]
    rows = [[name + count, *_ours(row)] for name, count, row in zip(names, counts, group.rows, strict=True)]
    if published:
        rows = [[*cells, *_papers(published.get(row.label))] for cells, row in zip(rows, group.rows, strict=True)]
    return table(caption, _head(bool(published)), rows, f"Results of {group.title}")


def swatch(label: str, style: Style) -> str:
    """A label with its line and marker before it."""
    dashes = {"solid": "", "dash": "6 3", "dot": "2 2", "dashdot": "6 2 2 2"}[style.dash]
    shape = _SHAPES[style.marker]
    picture = (
        '<svg class="swatch" viewBox="0 0 28 12" width="28" height="12" aria-hidden="true">'
        f'<path d="M0 6H28" stroke="{style.color}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        f'<path d="{shape}" fill="{style.color}"/></svg>'
    )
    return f"{picture}{text(label)}"


def _name(label: str, style: Style) -> str:
    """In a box that breaks a long name, so that the numbers stay in sight."""
    return f'<span class="name">{swatch(label, style)}</span>'


def _head(with_paper: bool) -> str:
    if not with_paper:
        names = "".join(f'<th scope="col">{name}</th>' for name in ("method", *_OURS))
        return f"<tr>{names}</tr>"
    names = "".join(f'<th scope="col">{name}</th>' for name in (*_OURS, *_PAPERS))
    return (
        '<tr><th scope="col" rowspan="2">method</th>'
        f'<th scope="colgroup" colspan="{len(_OURS)}"><span>our runs</span></th>'
        f'<th scope="colgroup" colspan="{len(_PAPERS)}" class="paper"><span>the paper’s numbers, not ours</span></th>'
        f"</tr><tr>{names}</tr>"
    )


def _ours(row: Row) -> list[str]:
    to_sam, to_sgd = ("" if quartiles else "~" for quartiles in (row.quartiles_to_sam, row.quartiles))
    quartiles = f" <small>({row.quartiles[0]:.2f}–{row.quartiles[1]:.2f})</small>" if row.quartiles else ""
    return [
        _accuracy(row.accuracy, row.accuracy_std if row.seeds > 1 else None),
        _accuracy(row.best, row.best_std if row.seeds > 1 else None),
        f"{row.samples:,.1f}".removesuffix(".0") + f" <small>({row.samples / row.steps:.0%})</small>",
        f"{row.ais:,.0f}",
        _ratio(row.ais_ratio_to_sam, to_sam),
        _ratio(row.speed_to_sgd, to_sgd) + quartiles,
        f"{row.ideal_ratio:.2f}",
    ]


def _papers(numbers: Published | None) -> list[str]:
    if numbers is None:
        return ["–"] * len(_PAPERS)
    return [
        _accuracy(numbers.accuracy, numbers.std),
        "–" if numbers.samples is None else f"{numbers.samples:,}",
        "–" if numbers.ais is None else f"{numbers.ais:,.0f}",
        _ratio(None if numbers.of_sam is None else numbers.of_sam / 100, ""),
    ]


def _accuracy(mean: float, deviation: float | None) -> str:
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"


def _ratio(value: float | None, apart: str) -> str:
    return "–" if value is None else f"{apart}{value:.2f}"
