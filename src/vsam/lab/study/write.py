"""What a study leaves behind: its numbers as JSON, its tables, its figures."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vsam.lab.comparison.tables import to_latex, to_markdown
from vsam.lab.errors import UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.study.plan import STUDIES, Scale
from vsam.lab.study.run import Outcome

__all__ = ["NAMES", "check_scale", "read_studies", "seeds_before", "write_convergence", "write_json", "write_study"]


NAMES = (*STUDIES, "convergence")
"""Of all studies, those without runs of networks included."""


def check_scale(out: Path, name: str, scale: Scale) -> None:
    """Refuse to overwrite a study that was run at another scale."""
    before = _before(out, name)
    if before is not None and before["scale"] != scale:
        raise UserError(
            f"{out} holds {name} at scale {before['scale']}, not {scale}. Choose another folder with --out."
        )


def read_studies(out: Path, names: Iterable[str] = NAMES) -> dict[str, dict[str, Any]]:
    """The studies in a folder by name; what else lies there is left alone.

    Args:
        out: the folder.
        names: of the studies to look for.
    """
    found = {}
    for name in names:
        path = out / f"{name}.json"
        if not path.exists():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path} cannot be read: {error}. Delete it, or run its study again.") from error
        if not isinstance(content, dict) or not {"study", "scale", "rows"} <= content.keys():
            raise UserError(f"{path} is no study's. Delete it, or run its study again.")
        found[name] = content
    return found


def seeds_before(out: Path, name: str) -> int:
    """How many seeds a study in the folder has, 0 if there is none."""
    try:
        return max(int(row["seeds"]) for row in (_before(out, name) or {"rows": []})["rows"])
    except (KeyError, TypeError, ValueError):
        return 0


def _before(out: Path, name: str) -> dict[str, Any] | None:
    """The study in the folder; one that cannot be read will be written anew."""
    try:
        return read_studies(out, [name]).get(name)
    except UserError:
        return None


def write_json(out: Path, content: dict[str, Any]) -> Path:
    """Write a study's numbers to `NAME.json`."""
    path = out / f"{content['study']}.json"
    write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")
    return path


def write_study(outcome: Outcome, out: Path, command: str) -> list[Path]:
    """Write numbers, tables and figures of a study to its folder, with the command that ran it; return the files."""
    name, content = outcome.study.name, {**outcome.to_dict(), "command": command}
    paths = [write_json(out, content)]
    head = f"# {outcome.study.title}\n\nScale: {outcome.scale}.\n"
    tables = {part.name: outcome.table(part) for part in outcome.parts}
    markdown = "\n".join([head, *(f"## {part}\n\n{to_markdown(rows)}" for part, rows in tables.items())])
    latex = "\n".join(to_latex(rows) for rows in tables.values())
    for file, text in ((f"{name}.md", markdown), (f"{name}.tex", latex)):
        write_atomically(out / file, text)
        paths.append(out / file)
    make_folder(out / "figures")
    return [*paths, *_figures(outcome, content["rows"], out / "figures")]


def write_convergence(content: dict[str, Any], out: Path, command: str) -> list[Path]:
    """Likewise for the study of lemma 2, which trains no network."""
    from vsam.lab.report.figures.figures import save_figure
    from vsam.lab.study.convergence.average import convergence_figure
    from vsam.lab.study.convergence.tables import to_latex, to_markdown

    rows = content["rows"]
    scale = f"Scale: {content['scale']}. {rows[0]['seeds']} seeds, mean ± deviation."
    paths = [write_json(out, {**content, "command": command}), out / "convergence.md", out / "convergence.tex"]
    write_atomically(paths[1], f"# The average of Lemma 2 over T\n\n{scale}\n\n{to_markdown(rows)}")
    write_atomically(paths[2], to_latex(rows))
    make_folder(out / "figures")
    return [*paths, *save_figure(convergence_figure(rows), out / "figures/convergence")]


def _figures(outcome: Outcome, rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    from vsam.lab.report.figures.figures import (  # matplotlib takes a second to import
        accuracy_against_speed,
        save_figure,
    )
    from vsam.lab.report.points import speed_deviations
    from vsam.lab.study.figures import norms_figure, setting_figure

    study = outcome.study
    if study.varied is not None:
        figures = {study.name: setting_figure(rows, study.varied)}
    elif study.name == "norms":
        figures = {study.name: norms_figure(rows)}
    else:
        figures = {
            f"{study.name}-{part.name}": accuracy_against_speed(
                part.rows,
                name=part.name,
                deviations=speed_deviations(part.rows, part.cells),
                published=part.published,
            )
            for part in outcome.parts
            if len(part.rows) > 1
        }
    return [path for name, figure in figures.items() for path in save_figure(figure, folder / name)]
