"""Writing a report: the page, and next to it the figures and tables for papers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vsam.lab.errors import UserError
from vsam.lab.files import check_output, is_standard_output, make_folder, write_atomically, write_output
from vsam.lab.paper.summary import judge_folders
from vsam.lab.report.find import find_runs
from vsam.lab.report.groups import Group, group_runs, labels_of
from vsam.lab.report.metrics import SHARPNESS_METRICS, STEP_METRICS
from vsam.lab.report.page.page import make_page
from vsam.lab.report.page.results import published_numbers
from vsam.lab.report.paper_tables import to_latex, to_markdown
from vsam.lab.report.points import speed_deviations
from vsam.lab.report.read import DrawnRun, read_drawn
from vsam.lab.report.style import styles_for

__all__ = ["ReportFiles", "write_report"]


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report.

    Args:
        page: the HTML file.
        figures: the SVG and PNG files.
        tables: the Markdown and LaTeX files.
        num_finished: runs that are in the tables.
        problems: a sentence for each run or study that is missing or incomplete.
    """

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    num_finished: int
    problems: tuple[str, ...]


def write_report(
    folders: Sequence[Path],
    output: Path,
    *,
    title: str | None = None,
    figures: bool = True,
    say: Callable[[str], object] = lambda text: None,
) -> ReportFiles:
    """Read all runs in the folders and write the report.

    Args:
        folders: of runs, or folders that contain them at any depth.
        output: the page, a file that ends in .html; figures and tables go to the folder NAME-figures next to it. Or `-`
            for stdout, which gets only the page.
        title: of the page; default: what was run.
        figures: whether to write figures and tables for papers too.
        say: called with the progress at every folder, run and group.

    Raises:
        UserError: there is no run at all, or the output is not an HTML file.
    """
    is_alone = is_standard_output(output)
    if not is_alone and output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"The report's file name must end in .html, got {str(output)!r}.")
    groups, outside = group_runs(_read(find_runs(folders, say), say))
    check_output(output)
    say(f"Writing {output}")
    judged, unread = judge_folders(folders)
    write_output(output, make_page(groups, outside, title, judged))
    drawn: list[Path] = []
    tables: list[Path] = []
    if figures and groups and not is_alone:
        folder = output.with_name(f"{output.stem}-figures")
        make_folder(folder)
        drawn, tables = _write_figures(groups, folder, say), _write_tables(groups, folder)
    listed = [*outside, *(run for group in groups for run in group.runs if run.problems)]
    return ReportFiles(
        page=output,
        figures=tuple(drawn),
        tables=tuple(tables),
        num_finished=sum(len(group.finished) for group in groups),
        problems=(*unread, *(f"{run.path}: {' '.join(run.problems)}" for run in listed)),
    )


def _read(paths: Sequence[Path], say: Callable[[str], object]) -> Iterator[DrawnRun]:
    for number, path in enumerate(paths, start=1):
        say(f"Reading run {number:,} of {len(paths):,}")
        yield read_drawn(path)


def _write_figures(groups: Sequence[Group], folder: Path, say: Callable[[str], object]) -> list[Path]:
    from vsam.lab.report.figures import figures  # matplotlib takes a second to import

    styles = styles_for(labels_of(groups))
    paths: list[Path] = []
    for group in groups:
        say(f"Drawing the figures of {group.slug}")
        made = {}
        if group.rows:
            made["accuracy-speed"] = figures.accuracy_against_speed(
                group.rows,
                name=group.recipe,
                deviations=speed_deviations(group.rows, group.finished),
                published=published_numbers(group),
                styles=styles,
                images=group.images,
            )
        if group.has("test_accuracy"):
            made["learning-curves"] = figures.learning_curves(group, styles)
        if any(group.has(metric.key) for metric in STEP_METRICS):
            made["norms"] = figures.norms([group], styles)
        if any(group.has(metric.key) for metric in SHARPNESS_METRICS):
            made["sharpness"] = figures.sharpness_curves(group, styles)
        if any(run.sampled is not None and len(run.sampled.index) for run in group.runs):
            made["samples"] = figures.sample_strips(group, styles)
        for name, figure in made.items():
            paths += figures.save_figure(figure, folder / f"{group.slug}-{name}")
    return paths


def _write_tables(groups: Sequence[Group], folder: Path) -> list[Path]:
    paths = []
    for group in groups:
        if group.rows:
            published = published_numbers(group)
            for suffix, writer in ((".md", to_markdown), (".tex", to_latex)):
                paths.append(folder / f"{group.slug}-table{suffix}")
                write_atomically(paths[-1], writer(group.rows, published))
    return paths
