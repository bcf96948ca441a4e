"""Write a report: the page, and next to it the figures and tables for papers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsam.lab.errors import UserError
from vsam.lab.files import check_output, is_standard_output, make_folder, write_atomically, write_output
from vsam.lab.report.figures import Curve, Point, Styles, cost_figure, curves, save, strips, styles_for
from vsam.lab.report.groups import METRICS, Group, Metric, find_runs, group_runs, labels_of
from vsam.lab.report.page import Details, Panel, Panels, Section, Table, render
from vsam.lab.report.tables import NOTES, cells, to_latex, to_markdown
from vsam.lab.report.words import overall, result, size
from vsam.lab.run import Run
from vsam.lab.study.claims import judged
from vsam.lab.study.paper import STEPS, Published, reference

__all__ = ["ReportFiles", "write_report"]

_PAPERS = ("method", "best epoch %", "2nd gradients", "AIS on an RTX 3090", "of sam")


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report.

    Args:
        page: the HTML file.
        others: figures and tables for papers.
        num_finished: runs that are in the tables.
        problems: a sentence for each run or study that is missing or incomplete.
    """

    page: Path
    others: tuple[Path, ...]
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
        output: the page, a file that ends in .html. Figures and tables go to the folder NAME-figures next to it. Or `-`
            for stdout, which gets only the page.
        title: of the page, default: what was run.
        figures: whether to write figures and tables for papers too.
        say: called with the progress.

    Raises:
        UserError: there is no run at all, or the output is not an HTML file.
    """
    is_alone = is_standard_output(output)
    if not is_alone and output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"The report's file name must end in .html, got {str(output)!r}.")
    paths = find_runs(folders, say)
    say(f"Reading {len(paths):,} runs")
    groups, outside = group_runs(paths)
    check_output(output)
    say(f"Writing {output}")
    labels = labels_of(groups)
    styles = styles_for(labels)
    sections = [_section(group, styles) for group in groups]
    unread: list[str] = []
    claims = [_claims(folder, number, unread) for number, folder in enumerate(folders)]
    page = [*sections, *(section for section in claims if section is not None)]
    flawed = [*outside, *((run, run.problem) for group in groups for run in group.all_runs if run.problem)]
    if flawed:
        lines = [["folder", "what is wrong"], *([str(run.path), why] for run, why in flawed)]
        page.append(Section("problems", "Runs with problems", blocks=[Table(f"{len(flawed)} runs", lines)]))
    num_finished = sum(len(group.finished) for group in groups)
    counts = {
        "finished": num_finished,
        "unfinished": sum(len(group.all_runs) for group in groups) - num_finished,
        "with problems": len(flawed),
    }
    small = f"Runs: {', '.join(f'{count} {what}' for what, count in counts.items() if count)}."
    write_output(output, render(title or _title(labels), overall(groups), small, page, styles))
    others: list[Path] = []
    if figures and groups and not is_alone:
        folder = output.with_name(f"{output.stem}-figures")
        make_folder(folder)
        for group, section in zip(groups, sections, strict=True):
            say(f"Drawing the figures of {group.slug}")
            others += [path for panel in section.panels for path in save(panel.figure, folder / panel.name)]
            for suffix, writer in ((".md", to_markdown), (".tex", to_latex)) if group.rows else ():
                others.append(folder / f"{group.slug}-table{suffix}")
                write_atomically(others[-1], writer(group.rows))
    return ReportFiles(
        page=output,
        others=tuple(others),
        num_finished=num_finished,
        problems=(*unread, *(f"{run.path}: {why}" for run, why in flawed)),
    )


def _section(group: Group, styles: Styles) -> Section:
    published = {} if group.is_validation else _published(group)
    table: list[Table | Panels | Details] = []
    panels: list[Panel] = []
    if group.rows:
        labels = [row.label for row in group.rows]
        table.append(Table("Results", cells(group.rows, quartiles=True), labels, NOTES))
        words = ", ".join(f"{row.label}: {row.accuracy:.2f} % at {2 / row.ideal_ratio:.2f}" for row in group.rows)
        hollow = [
            Point(label, 1 + one.samples / STEPS, one.accuracy, y_error=one.std or 0.0, is_hollow=True)
            for label, one in published.items()
            if one.samples is not None
        ]
        figure = cost_figure(group.rows, styles, hollow, group.images)
        panels.append(Panel(f"{group.slug}-accuracy-cost", "Accuracy against cost", figure, f"Passes: {words}."))
    by_part: dict[str, list[Panel]] = {"accuracy": panels, "loss": [], "steps": [], "sharpness": []}
    for metric in METRICS:
        if lines := group.curves(metric):
            part = metric.key.rpartition("_")[2] if metric.source == "epochs" else metric.source
            by_part[part].append(_panel(group, metric, lines, styles))
    if shares := group.sampled():
        figure = strips(shares, styles, x="step", total=group.steps)
        words = ", ".join(f"{label}: {np.mean(share):.0%}" for label, share in shares.items())
        by_part["steps"].insert(0, Panel(f"{group.slug}-samples", "Which steps were sampled", figure, words))
    pictures = {
        part: Panels(title, by_part[part], note)
        for part, title, note in (
            ("accuracy", "Accuracy", _band(group)),
            ("loss", "Loss", ""),
            ("steps", "Sampling and norms", "Only sampled steps are recorded."),
            ("sharpness", "Sharpness during training", _sharpness_note(group)),
        )
        if by_part[part]
    }
    first = pictures.pop("accuracy", None)  # a long table would push it off the screen
    blocks = [*([first] if first else []), *table, *pictures.values()]
    blocks += _papers(published) + _quantized(group)
    blocks.append(Details("Runs", [_details(run) for run in group.all_runs]))
    badge = "tiny run" if group.is_tiny else ""
    return Section(group.slug, group.title, result(group), size(group), blocks, badge)


def _panel(group: Group, metric: Metric, lines: Sequence[Curve], styles: Styles) -> Panel:
    title, axis = metric.title, metric.axis
    if group.is_validation:
        title, axis = title.replace("Test", "Validation"), axis.replace("test", "validation")
    x = "epoch" if metric.source == "epochs" else "step"
    figure = curves(lines, styles, x=x, y=axis, bounds=metric.bounds)
    words = ", ".join(f"{line.label}: {np.ravel(line.y)[-1]:.4g}" for line in lines)
    return Panel(f"{group.slug}-{metric.key.replace('_', '-')}", title, figure, f"At the end: {words}.")


def _band(group: Group) -> str:
    if max((row.seeds for row in group.rows), default=0) < 2:
        return "One seed."
    return "Lines: mean over seeds. Bands: from the lowest to the highest seed. Error bars: one standard deviation."


def _sharpness_note(group: Group) -> str:
    flags = [line.get("top_eigenvalue_converged") for run in group.all_runs for line in run.sharpness]
    loose = sum(flag is not True for flag in flags)
    text = f"{loose:,} of {len(flags):,} top eigenvalues have not converged and are lower bounds. " if loose else ""
    return f"{text}On training images without augmentation. A smaller number is not a better network."


def _published(group: Group) -> dict[str, Published]:
    """Return the paper's numbers by label, for runs whose setting is the paper's."""
    recipes = {label: group.of(label)[0].recipe for label in group.runs if group.of(label)}
    found = {label: reference(recipe) for label, recipe in recipes.items() if recipe is not None}
    return {label: one for label, one in found.items() if one is not None}


def _papers(published: Mapping[str, Published]) -> list[Table | Panels | Details]:
    lines = [list(_PAPERS)]
    for label, one in published.items():
        deviation = "" if one.std is None else f" ± {one.std:.2f}"
        others = ((one.samples, ",.0f"), (one.ais, ",.0f"), (one.of_sam and one.of_sam / 100, ".2f"))
        texts = ["–" if value is None else format(value, form) for value, form in others]
        lines.append([label, f"{one.accuracy:.2f}{deviation}", *texts])
    note = "These runs were made in the paper’s setting. Hollow points in the figure: the paper’s numbers."
    return [Table("The paper’s numbers for this setting, not ours", lines, list(published), note)] if published else []


def _quantized(group: Group) -> list[Table | Panels | Details]:
    """Return the sizes of quantized networks."""
    lines = [["method", "accuracy %", "bytes", "bytes in full precision", "times smaller"]]
    for row in group.rows:
        summary = group.of(row.label)[0].summary
        small, full = summary.get("quantized_bytes"), summary.get("full_bytes")
        if isinstance(small, int) and isinstance(full, int) and small > 0:
            lines.append([row.label, f"{row.accuracy:.2f}", f"{small:,}", f"{full:,}", f"{full / small:.2f}"])
    note = "Weights as integers, with their scales, and everything that is not quantized."
    return [Table("Size of the quantized weights", lines, [line[0] for line in lines[1:]], note)] if lines[1:] else []


def _claims(folder: Path, number: int, unread: list[str]) -> Section | None:
    """Return the verdicts of a folder's studies, if it has any."""
    try:
        found = judged(folder)
    except UserError as error:
        unread.append(str(error))
        return None
    if found is None:
        return None
    sentence, lines = found
    verdicts = Table("Verdicts", lines, note="The paper’s numbers were not measured by us.")
    return Section(f"claims-{number}", "The paper’s claims and our runs", sentence, f"Studies in {folder}", [verdicts])


def _details(run: Run) -> tuple[str, str]:
    """Return a run's heading, and its folder, settings and summary."""
    done = f"{run.summary['accuracy']:.2f} %" if run.summary else f"{len(run.epochs)} of {run.num_epochs} epochs"
    text = f"# {run.path}\n{run.config}\n{json.dumps(run.summary, indent=1)}"
    return f"{run.label}, seed {run.seed}: {run.state}, {done}", text


def _title(labels: Sequence[str]) -> str:
    if not labels:
        return "No usable runs"
    if len(labels) > 5:
        return f"{len(labels)} methods compared"
    return " and ".join([", ".join(labels[:-1]), labels[-1]]) if len(labels) > 1 else labels[0]
