"""What the page shows of a group: facts, the table's lines, and the numbers of its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vsam.lab.paper.numbers import Published
from vsam.lab.report.groups import Group
from vsam.lab.report.page.charts import Chart, epoch_charts, sample_chart, step_charts
from vsam.lab.report.page.results import Line, published_numbers, result_lines
from vsam.lab.report.page.speed_chart import speed_chart
from vsam.lab.report.points import published_spots
from vsam.lab.report.scale import describe_scale, is_small, scale_line
from vsam.lab.report.style import Style
from vsam.lab.report.summary import sentence

__all__ = ["Section", "make_section"]


@dataclass(frozen=True)
class Section:
    """A group as the template takes it.

    Args:
        group: the runs.
        published: the paper's numbers by label.
        scale: how much was run, in a line.
        facts: the same in full, as names and texts.
        is_small: whether it is smaller than the paper's smallest setting.
        summary: what came out, in a sentence.
        lines: of the table.
        speed: the number of the figure of accuracy against speed, if there is one.
        epochs, steps: the numbers of the curves' panels.
        samples: the number of the figure that shows where samples fell, if there is one.
        epoch_width, step_width: how many epochs and steps are one point.
    """

    group: Group
    published: Mapping[str, Published]
    scale: str
    facts: list[tuple[str, str]]
    is_small: bool
    summary: str
    lines: list[Line]
    speed: int | None
    epochs: list[int]
    steps: list[int]
    samples: int | None
    epoch_width: int
    step_width: int

    @property
    def has_hollow(self) -> bool:
        """Whether the paper's points are in the figure of speeds."""
        return bool(published_spots(self.group.rows, self.published))


def make_section(group: Group, styles: Mapping[str, Style], charts: list[Chart]) -> Section:
    """Gather a group; its figures are added to the page's, whose places are their numbers."""

    def add(chart: Chart | None) -> int | None:
        if chart is not None:
            charts.append(chart)
        return None if chart is None else len(charts) - 1

    def add_all(panels: Sequence[Chart]) -> list[int]:
        charts.extend(panels)
        return list(range(len(charts) - len(panels), len(charts)))

    published = published_numbers(group)
    return Section(
        group=group,
        published=published,
        scale=scale_line(group),
        facts=describe_scale(group),
        is_small=is_small(group),
        summary=sentence(group),
        lines=result_lines(group, published),
        speed=add(speed_chart(group, styles, published) if group.rows else None),
        epochs=add_all(epoch_charts(group, styles)),
        steps=add_all(step_charts(group, styles)),
        samples=add(sample_chart(group, styles)),
        epoch_width=_width(group, "test_accuracy"),
        step_width=max((run.sampled.width for run in group.runs if run.sampled is not None), default=1),
    )


def _width(group: Group, key: str) -> int:
    return max((run.curves[key].width for run in group.runs if key in run.curves), default=1)
