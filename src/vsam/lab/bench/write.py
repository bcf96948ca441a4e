"""The report as files: Markdown, JSON and the picture."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsam.lab.bench.measure import Report
from vsam.lab.bench.tables import READING, sections, to_markdown
from vsam.lab.files import write_atomically

__all__ = ["in_words", "to_json", "to_page", "write_folder"]


def in_words(facts: Mapping[str, Any]) -> str:
    """The environment of a benchmark, as a sentence."""
    peers = f", pytorch_optimizer {facts['pytorch_optimizer']}" if facts["pytorch_optimizer"] else ""
    return (
        f"{facts['device']}, {facts['cores']} cores, one thread; vsam {facts['vsam']} at {facts['commit']}, "
        f"torch {facts['torch']}, Python {facts['python']}{peers}."
    )


def to_json(report: Report, command: str) -> str:
    """Everything a result must state, and every number."""
    record = {"command": command, "environment": report.facts, **report.to_dict()}
    return json.dumps(record, indent=2) + "\n"


def to_page(report: Report, command: str) -> str:
    """A page with all tables."""
    tables = "\n".join(to_markdown(section) for section in sections(report))
    notes = "".join(f"- {note}\n" for note in report.notes)
    picture = "![what each method adds](bench.png)\n\n" if report.rows else ""
    return f"# vsam bench\n\n`{command}`\n\n{in_words(report.facts)}\n\n{READING}\n\n{notes}\n{picture}{tables}"


def write_folder(folder: Path, report: Report, command: str) -> list[Path]:
    """Write `bench.md`, `bench.json`, `bench.svg` and `bench.png`; returns their paths."""
    from vsam.lab.bench.picture import draw, save  # matplotlib takes a second to import

    files: dict[str, str | bytes] = {"bench.md": to_page(report, command), "bench.json": to_json(report, command)}
    if report.rows:
        figure = draw(report.rows, f"{command}\n{in_words(report.facts)}")
        files |= {f"bench.{kind}": save(figure, kind) for kind in ("svg", "png")}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]
