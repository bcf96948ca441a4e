"""Writing the pictures of `vsam sharpness`: figures as SVG and PNG, the page, and all numbers as JSON."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsam.lab.files import make_folder, write_atomically
from vsam.lab.flatness.figures import sharpness_figures
from vsam.lab.flatness.page import make_page
from vsam.lab.flatness.slices import Slices
from vsam.lab.report.figures.drawing import save_figure
from vsam.lab.report.style import place_of, styles_for
from vsam.lab.runs.flatness import MeasuredRun

__all__ = ["write_pictures"]


def write_pictures(rows: Mapping[str, MeasuredRun], slices: Slices | None, out: Path) -> list[Path]:
    """Write everything to a folder and return the files, the page first.

    Args:
        rows: the measurements, by run name.
        slices: through the loss, if any.
        out: the folder.
    """
    make_folder(out)
    styles = styles_for(sorted(rows, key=lambda name: place_of(rows[name].method, name)))
    styles = {name: styles[name] for name in rows}
    found = {name: row.found for name, row in rows.items()}
    page = out / "sharpness.html"
    write_atomically(page, make_page(found, {name: row.path.parent for name, row in rows.items()}, styles, slices))
    content: dict[str, Any] = {"runs": {name: row.to_dict() for name, row in rows.items()}}
    content |= {"landscape": slices.to_dict()} if slices is not None else {}
    write_atomically(out / "sharpness.json", json.dumps(_finite(content), indent=1, allow_nan=False) + "\n")
    figures = sharpness_figures(found, styles, slices)
    return [page, out / "sharpness.json", *(p for name, one in figures.items() for p in save_figure(one, out / name))]


def _finite(thing: Any) -> Any:
    """A copy with None for numbers that JSON cannot represent."""
    if isinstance(thing, dict):
        return {name: _finite(value) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return [_finite(value) for value in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing
