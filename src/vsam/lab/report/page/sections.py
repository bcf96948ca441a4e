"""The parts of the page: what was run, what was not, and each run's settings."""

from collections.abc import Mapping, Sequence

from vsam.lab.paper.numbers import Published
from vsam.lab.report.groups import Group
from vsam.lab.report.page.charts import Chart, epoch_charts, sample_chart, step_charts
from vsam.lab.report.page.markup import definitions, element, table, text
from vsam.lab.report.page.results import published_numbers, results_table, swatch
from vsam.lab.report.page.speed_chart import speed_chart
from vsam.lab.report.points import published_spots
from vsam.lab.report.read import DrawnRun
from vsam.lab.report.scale import describe_scale, is_small
from vsam.lab.report.style import Style

__all__ = ["Charts", "group_section", "method_switches", "problem_section"]

Styles = Mapping[str, Style]

_MOST_OPEN = 5  # a longer list of runs with problems is folded, so that the results are seen first


class Charts:
    """The charts of the page in their order; each gets a place in the HTML."""

    def __init__(self) -> None:
        self.specs: list[dict[str, object]] = []

    def add(self, chart: Chart, *, with_title: bool = True) -> str:
        """The HTML of the chart's place."""
        name = f"chart-{len(self.specs)}"
        self.specs.append(chart.spec)
        size = f"height:{chart.height}px"
        place = element("div", "", id=name, class_="plot", style=size, role="img", aria_label=chart.title)
        return element("div", (f"<h4>{text(chart.title)}</h4>" if with_title else "") + place, class_="chart")


def method_switches(styles: Styles) -> str:
    """One set of check boxes for all figures, which is their legend too."""
    boxes = "".join(
        f'<label><input type="checkbox" name="method" value="{text(label)}" checked>{swatch(label, style)}</label>'
        for label, style in styles.items()
    )
    buttons = '<button type="button" data-all="1">all</button><button type="button" data-all="">none</button>'
    title = '<span id="methods-title">Methods shown</span>'
    return f'<div class="methods" role="group" aria-labelledby="methods-title">{title}<div>{boxes}{buttons}</div></div>'


def group_section(group: Group, styles: Styles, charts: Charts) -> str:
    """Everything about a group."""
    published = published_numbers(group)
    parts = [
        f"<h2>{text(group.title)}</h2>",
        f'<p class="recipe">Recipe {text(group.recipe)}</p>',
        definitions(describe_scale(group), class_="facts"),
        _scale_note(group, published),
        _results(group, styles, published),
        _speed(group, styles, published, charts),
        _curves("Learning curves", epoch_charts(group, styles), charts, _epoch_caption(group)),
        _curves("Norms and sampling over the steps", step_charts(group, styles), charts, _step_caption(group)),
        _samples(group, styles, charts),
        _run_list(group),
    ]
    return element("section", "".join(parts), id=f"group-{group.slug}")


def problem_section(outside: Sequence[DrawnRun], groups: Sequence[Group]) -> str:
    """Runs that are not in the tables, or not wholly in the figures, and why."""
    runs = [*outside, *(run for group in groups for run in group.runs if run.problems)]
    if not runs:
        return ""
    head = '<tr><th scope="col">folder</th><th scope="col">state</th><th scope="col">why</th></tr>'
    states = {
        "broken": "not used",
        "unfinished": "unfinished: drawn dotted, not in the table",
        "finished": "in the table",
    }
    rows = [[text(run.path), states[run.state], text(" ".join(run.problems))] for run in runs]
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''} with something missing"
    found = table(count, head, rows, "Runs that are not whole")
    if len(runs) > _MOST_OPEN:
        found = f"<details><summary>{count}</summary>{found}</details>"
    return element(
        "section",
        f"<h2>Runs that are not whole</h2>{found}",
        class_="problems",
        id="problems",
    )


def _scale_note(group: Group, published: Mapping[str, Published]) -> str:
    if published:
        return '<p class="note">The setting of the rows with the paper’s numbers is the paper’s.</p>'
    size = "<strong>Small scale.</strong> " if is_small(group) else ""
    return (
        f'<p class="note">{size}The paper trains networks of 11 to 36 million parameters on 50,000 images for 78,200 '
        "steps. It has no numbers for the setting above, so none stand in the table.</p>"
    )


def _results(group: Group, styles: Styles, published: Mapping[str, Published]) -> str:
    if not group.rows:
        return "<h3>Results</h3><p>No run of this group is finished.</p>"
    images = "held-out training images" if group.is_validation else "test images"
    notes = [
        f"Accuracy: on the {images}, of the last epoch; best: of the best epoch, chosen by looking at the {images}. "
        "Second gradients: mean over seeds, and as a share of the steps. AIS: images a second of training, "
        "evaluation left out. Of SAM, of SGD: the speed against theirs in epochs that ran in turns, with quartiles; "
        "~ marks speeds that were not timed together. Ideal of SAM: 2/(1 + share of sampled steps).",
    ]
    if published:
        notes.append("The paper’s accuracy is that of the best epoch, and its speeds are of an RTX 3090.")
    return f'<h3>Results</h3>{results_table(group, styles, published)}<p class="caption">{" ".join(notes)}</p>'


def _speed(group: Group, styles: Styles, published: Mapping[str, Published], charts: Charts) -> str:
    if not group.rows:
        return ""
    bars = "Bars: one standard deviation over seeds, both ways. " if any(row.seeds > 1 for row in group.rows) else ""
    paper = (
        "Filled: our runs, last epoch. Hollow: the paper’s numbers, <strong>best</strong> epoch, on other hardware. "
        if published_spots(group.rows, published)
        else ""
    )
    chart = speed_chart(group, styles, published)
    has_gaps = None in chart.spec["names"]["narrow"]
    names = "Names without room are left out: the marks are in the list of methods. " if has_gaps else ""
    caption = f"{bars}{paper}{names}Up and to the right is better."
    return _figure(chart.title, charts.add(chart, with_title=False), caption)


def _curves(title: str, panels: Sequence[Chart], charts: Charts, caption: str) -> str:
    places = "".join(charts.add(chart) for chart in panels)
    if not places:
        return f"<h3>{title}</h3><p>Nothing is recorded.</p>"
    return _figure(title, f'<div class="grid">{places}</div>', caption)


def _samples(group: Group, styles: Styles, charts: Charts) -> str:
    chart = sample_chart(group, styles)
    if chart is None:
        return ""
    width = next(run.sampled.width for run in group.runs if run.sampled is not None)
    cells = "A cell is a step" if width == 1 else f"A cell is {width:,} steps"
    caption = f"A row a run. {cells}; empty: none of them was sampled, full colour: all."
    return _figure("Where the samples fell", charts.add(chart, with_title=False), caption)


def _figure(title: str, content: str, caption: str) -> str:
    return f"<figure><h3>{title}</h3>{content}<figcaption>{caption}</figcaption></figure>"


def _epoch_caption(group: Group) -> str:
    widths = [curve.width for run in group.runs for key, curve in run.curves.items() if key == "test_accuracy"]
    return _curve_caption(widths, "epoch", "value")


def _step_caption(group: Group) -> str:
    widths = [curve.width for run in group.runs for key, curve in run.curves.items() if key == "rate"]
    note = (
        " Only sampled steps are recorded, so a method without second gradients has no curve; the sampling rate and "
        "the changes in force between two of them are drawn as the second says."
    )
    return _curve_caption(widths, "step", "sampled step") + note


def _curve_caption(widths: Sequence[int], unit: str, value: str) -> str:
    width = max(widths, default=1)
    if width == 1:
        return "Line: mean over seeds. Band: from the lowest to the highest seed."
    return (
        f"Downsampled: a point is the mean of {width:,} {unit}s of all seeds, and the band reaches from the lowest to "
        f"the highest {value} among them, so no extreme is lost."
    )


def _run_list(group: Group) -> str:
    return f"<h3>Runs</h3>{''.join(_run_details(run) for run in group.runs)}"


def _run_details(run: DrawnRun) -> str:
    result = f"{run.summary['accuracy']:.2f} %" if run.summary else f"{len(run.epochs)} epochs"
    problems = "".join(f'<p class="problem">{text(problem)}</p>' for problem in run.problems)
    environment = run.summary.get("environment")
    facts = [(name, str(value)) for name, value in run.summary.items() if name != "environment"]
    facts += [(str(name), str(value)) for name, value in environment.items()] if isinstance(environment, dict) else []
    return (
        f"<details><summary>{text(run.label)}, seed {text(run.seed)}: {run.state}, {result}</summary>{problems}"
        f"{definitions([('folder', str(run.path)), *facts], class_='facts small')}<pre>{text(run.toml)}</pre></details>"
    )
