"""The page: one file that works offline and loads nothing."""

import json
from collections.abc import Sequence
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import vsam
from vsam.lab.paper import numbers
from vsam.lab.paper.summary import LEGEND, Summary
from vsam.lab.report.groups import Group, labels_of
from vsam.lab.report.page.charts import Chart
from vsam.lab.report.page.results import HEADINGS, PAPER_HEADINGS
from vsam.lab.report.page.sections import make_section
from vsam.lab.report.read import DrawnRun
from vsam.lab.report.style import styles_for
from vsam.lab.report.summary import dates, overall
from vsam.lab.text import printable

__all__ = ["make_page"]

# The browser blocks every request the page could make.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_SHAPES = {
    "circle": "M9 6a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "square": "M9 1h10v10h-10z",
    "diamond": "M14 0l6 6l-6 6l-6 -6z",
    "triangle-up": "M14 0l6 11h-12z",
    "cross": "M12 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
    "star": "M14 0l1.5 4h4.3l-3.4 2.7l1.3 4.5l-3.7 -2.7l-3.7 2.7l1.3 -4.5l-3.4 -2.7h4.3z",
}
_DASHES = {"solid": "", "dash": "6 3", "dot": "2 2", "dashdot": "6 2 2 2"}
_LOOK = {
    "policy": _POLICY,
    "shapes": _SHAPES,
    "dashes": _DASHES,
    "states": {
        "broken": "not used",
        "unfinished": "unfinished: drawn dotted, not in the table",
        "finished": "in the table",
    },
    "headings": list(HEADINGS),
    "paper_headings": list(PAPER_HEADINGS),
    "paper": {
        "millions": f"{numbers.FEWEST_PARAMETERS // 10**6} to {numbers.MOST_MILLIONS}",
        "images": f"{numbers.NUM_IMAGES['train']:,}",
        "steps": f"{numbers.STEPS:,}",
    },
}


def make_page(
    groups: Sequence[Group],
    outside: Sequence[DrawnRun],
    title: str | None = None,
    judged: Sequence[tuple[Path, Summary]] = (),
) -> str:
    """The report as HTML.

    Args:
        groups: of runs, each with its table and figures.
        outside: runs in no group, listed with the reason.
        title: of the page; default: what was run.
        judged: folders of studies, and their verdicts on the paper's claims.
    """
    environment = Environment(
        loader=PackageLoader("vsam.lab.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
    )
    styles = styles_for(labels_of(groups))
    charts: list[Chart] = []
    sections = [make_section(group, styles, charts) for group in groups]
    return environment.get_template("page.html").render(
        **_LOOK,
        title=title or _title(groups),
        styles=styles,
        charts=charts,
        sections=sections,
        outside=outside,
        counts=_counts(groups),
        summary=overall(groups),
        dates=dates(groups, date.today()),
        judged=judged,
        legend=LEGEND,
        flawed=[*outside, *(run for group in groups for run in group.runs if run.problems)],
        facts_of=_facts,
        specs=_script_json(
            {
                "charts": [{"spec": chart.spec, "height": chart.height} for chart in charts],
                "look": {"shapes": _SHAPES, "dashes": _DASHES},
            }
        ),
        css=_resource("page.css"),
        scripts=[_resource("chart.js"), _resource("page.js")],
        version=vsam.__version__,
    )


def _title(groups: Sequence[Group]) -> str:
    labels = labels_of(groups)
    if not labels:
        return "No usable runs"
    if len(labels) > 5:
        return f"{len(labels)} methods compared"
    return " and ".join([", ".join(labels[:-1]), labels[-1]]) if len(labels) > 1 else labels[0]


def _counts(groups: Sequence[Group]) -> str:
    finished = sum(len(group.finished) for group in groups)
    unfinished = sum(len(group.runs) for group in groups) - finished
    counts = [f"{finished} finished run{'s' if finished != 1 else ''}"]
    return ", ".join(counts + ([f"{unfinished} unfinished"] if unfinished else []))


def _facts(run: DrawnRun) -> list[tuple[str, str]]:
    """The run's folder, and everything in its summary, rounded."""
    environment = run.summary.get("environment")
    facts = {name: value for name, value in run.summary.items() if name != "environment"}
    facts |= environment if isinstance(environment, dict) else {}
    return [
        ("folder", str(run.path)),
        *((str(name).replace("_", " "), _rounded(value)) for name, value in facts.items()),
    ]


def _rounded(value: object) -> str:
    """A number for people; summary.json has all digits."""
    if isinstance(value, float):
        return f"{value:,.2f}".removesuffix(".00") if abs(value) >= 1 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _script_json(value: Any) -> Markup:
    """JSON that is safe in a script element: nothing in it can end the element."""
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        plain = plain.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(plain)


def _resource(name: str) -> Markup:
    return Markup((resources.files("vsam.lab.report.page") / name).read_text(encoding="utf-8"))
