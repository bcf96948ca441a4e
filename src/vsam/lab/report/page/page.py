"""The page: one file that opens without a network and asks nothing of anybody."""

from collections.abc import Sequence
from importlib import resources

import vsam
from vsam.lab.errors import UserError
from vsam.lab.report.groups import Group, labels_of
from vsam.lab.report.page.markup import element, script_json, text
from vsam.lab.report.page.sections import Charts, group_section, method_switches, problem_section
from vsam.lab.report.read import DrawnRun
from vsam.lab.report.scale import scale_line
from vsam.lab.report.style import styles_for

__all__ = ["make_page"]

# The browser itself refuses whatever would leave the page.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def make_page(groups: Sequence[Group], outside: Sequence[DrawnRun], title: str | None = None) -> str:
    """The report as HTML.

    Args:
        groups: of runs, each with its table and figures.
        outside: runs that are in no group, to be listed with the reason.
        title: of the page; by default what was run.
    """
    title = title or _title(groups)
    styles = styles_for(labels_of(groups))
    charts = Charts()
    sections = "".join(group_section(group, styles, charts) for group in groups)
    body = [
        element("header", f"<h1>{text(title)}</h1>{_overview(groups, outside)}"),
        method_switches(styles) if styles else "",
        "<noscript><p>The figures need JavaScript; the tables do not.</p></noscript>",
        element("main", problem_section(outside, groups) + sections),
        element("footer", f"<p>Made by vsam {text(vsam.__version__)}. Figures by plotly.js.</p>"),
        f'<script type="application/json" id="charts">{script_json(charts.specs)}</script>',
        f"<script>{_plotly()}</script>" if charts.specs else "",
        f"<script>{_resource('page.js')}</script>",
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{text(title)}</title>",
        f"<style>{_resource('page.css')}</style>",
    ]
    lines = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", *body, "</body>", "</html>"]
    return "\n".join(line for line in lines if line) + "\n"


def _title(groups: Sequence[Group]) -> str:
    labels = labels_of(groups)
    if not labels:
        return "No usable runs"
    if len(labels) > 5:
        return f"{len(labels)} methods compared"
    return " and ".join([", ".join(labels[:-1]), labels[-1]]) if len(labels) > 1 else labels[0]


def _overview(groups: Sequence[Group], outside: Sequence[DrawnRun]) -> str:
    finished = sum(len(group.finished) for group in groups)
    unfinished = sum(len(group.runs) for group in groups) - finished
    counts = [f"{finished} finished run{'s' if finished != 1 else ''}"]
    counts += [f"{unfinished} unfinished"] if unfinished else []
    counts += [f'<a href="#problems">{len(outside)} not used</a>'] if outside else []
    links = "".join(
        f'<li><a href="#group-{group.slug}">{text(group.title)}</a> <small>({text(group.recipe)})</small>: '
        f"{text(scale_line(group))}</li>"
        for group in groups
    )
    return f'<p class="lead">{", ".join(counts)}.</p><nav aria-label="Settings"><ul>{links}</ul></nav>'


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise UserError("A report needs the package plotly: pip install 'vsam[lab]'.") from error
    code = str(get_plotlyjs())
    assert "</script" not in code
    return code


def _resource(name: str) -> str:
    return (resources.files("vsam.lab.report.page") / name).read_text(encoding="utf-8")
