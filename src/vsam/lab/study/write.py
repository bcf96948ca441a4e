"""The files of a study: its numbers as JSON, its tables, its figures."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vsam.lab.errors import UserError
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.study.plan import STUDIES
from vsam.lab.study.study import Outcome, Scale

__all__ = ["check_scale", "read_studies", "seeds_before", "write_study"]


def check_scale(out: Path, name: str, scale: Scale) -> None:
    """Raise instead of overwriting a study that was run at another scale."""
    before = _before(out, name)
    if before is not None and before["scale"] != scale:
        raise UserError(f"{out} has {name} at scale {before['scale']}, not {scale}. Choose another folder with --out.")


def read_studies(out: Path, names: Iterable[str] = tuple(STUDIES)) -> dict[str, dict[str, Any]]:
    """The studies in a folder by name; other files are ignored.

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
            raise UserError(f"{path} cannot be read: {error}. Delete it, or rerun its study.") from error
        if not isinstance(content, dict) or not {"study", "scale", "rows"} <= content.keys():
            raise UserError(f"{path} is not a study's file. Delete it, or rerun its study.")
        found[name] = content
    return found


def seeds_before(out: Path, name: str) -> int:
    """The number of seeds of the study in the folder, 0 if there is none."""
    try:
        return max(int(row["seeds"]) for row in (_before(out, name) or {"rows": []})["rows"])
    except (KeyError, TypeError, ValueError):
        return 0


def _before(out: Path, name: str) -> dict[str, Any] | None:
    """The study in the folder; one that cannot be read will be rewritten."""
    try:
        return read_studies(out, [name]).get(name)
    except UserError:
        return None


def write_study(outcome: Outcome, out: Path, command: str) -> list[Path]:
    """Write numbers, tables and figures of a study to its folder, with the command that ran it; returns the files."""
    from vsam.lab.report.figures.drawing import save_figure  # matplotlib takes a second to import

    content = {**outcome.to_dict(), "command": command}
    name = content["study"]
    paths = [out / f"{name}{suffix}" for suffix in (".json", ".md", ".tex")]
    texts = (json.dumps(content, indent=2, allow_nan=False) + "\n", *outcome.tables())
    for path, text in zip(paths, texts, strict=True):
        write_atomically(path, text)
    make_folder(out / "figures")
    return [
        *paths,
        *(path for name, figure in outcome.figures().items() for path in save_figure(figure, out / "figures" / name)),
    ]
