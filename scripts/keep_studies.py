"""Take the results of a folder of studies into the repository.

    vsam study table1 && vsam study alpha && …     # whatever there is, in studies/small
    vsam study --compare-paper
    python scripts/keep_studies.py studies/small

Numbers and tables go to benchmarks/results/small, figures to docs/figures. Then the tables on the pages that quote them
are filled in anew: whatever stands between `<!-- FILE: SECTION -->` and `<!-- end -->`.

With --add, rows that are in the repository and not in the folder stay, for a study of which only a part was run again.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from vsam.lab.comparison.rows import Row
from vsam.lab.report.figures.drawing import save_figure
from vsam.lab.study.outcome import markdown_page
from vsam.lab.study.plan import STUDIES
from vsam.lab.study.study import Study
from vsam.lab.study.write import read_studies

Record = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks/results/small"
FIGURES = REPOSITORY / "docs/figures"
PAGES = [
    REPOSITORY / "README.md",
    *(REPOSITORY / f"docs/{name}.md" for name in ("reproduction", "frontier", "flatness")),
]
FEWEST_SEEDS = 3  # with fewer, a recipe is not in the headline yet
BLOCK = re.compile(r"(<!-- (?P<file>[\w.-]+)(?:: (?P<section>[\w. -]+?))? -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Copy, then fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the studies, e.g. studies/small")
    parser.add_argument("--add", action="store_true", help="keep the rows that the folder lacks")
    arguments = parser.parse_args()
    folder = arguments.folder
    RESULTS.mkdir(parents=True, exist_ok=True)
    FIGURES.mkdir(parents=True, exist_ok=True)
    before = read_studies(RESULTS) if arguments.add else {}
    for path in [*folder.glob("*.json"), *folder.glob("*.md")]:
        text = re.sub(r" --out \S+?(?=[ \"\n`])", "", path.read_text(encoding="utf-8"))  # a folder of one machine
        (RESULTS / path.name).write_text(text, encoding="utf-8")
    for path in (folder / "figures").glob("*.svg"):
        shutil.copyfile(path, FIGURES / path.name)
    for name, content in read_studies(RESULTS, list(read_studies(folder))).items():
        if name in before and (missing := _missing(before[name], content)):
            _write(STUDIES[name], _added(before[name], missing, content))
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def _missing(before: Record, now: Record) -> list[Record]:
    """The rows of a study that its new results lack."""
    known = {(row["recipe"], row["label"]) for row in now["rows"]}
    return [row for row in before["rows"] if (row["recipe"], row["label"]) not in known]


def _added(before: Record, missing: list[Record], now: Record) -> Record:
    """The new results with the rows that they lack, each part's in one place."""
    rows = [*missing, *now["rows"]]
    parts = list(dict.fromkeys(row["recipe"] for row in rows))
    return {
        **now,
        "rows": sorted(rows, key=lambda row: parts.index(row["recipe"])),
        "training_seconds": before["training_seconds"] + now["training_seconds"],
        "environments": [*before["environments"], *(e for e in now["environments"] if e not in before["environments"])],
    }


def _write(study: Study, content: Record) -> None:
    """Numbers, page and figures of a study whose rows were put together."""
    rows = content["rows"]
    tables: dict[str, list[Row]] = {}
    for row in rows:
        line = Row.from_record(row)  # SGD's turns were SAM's too
        tables.setdefault(row["recipe"], []).append(replace(line, quartiles_to_sam=line.quartiles))
    (RESULTS / f"{study.name}.json").write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    page = markdown_page(study, content["scale"], tables, rows)
    (RESULTS / f"{study.name}.md").write_text(page, encoding="utf-8")
    for name, figure in study.draw(study, rows, {}).items():
        save_figure(figure, FIGURES / name)[1].unlink()  # pages show the SVG


def filled(text: str) -> str:
    """A page with its tables as the results have them now."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{_content(block['file'], block['section'])}\n{block[4]}", text)


def _content(file: str, section: str | None) -> str:
    if file == "headline":
        return _headline()
    text = (RESULTS / file).read_text(encoding="utf-8")
    if section is None:
        return text
    after = text.partition(f"## {section}\n\n")[2]
    if not after:
        raise SystemExit(f"{file} has no section {section}.")
    return after.partition("\n## ")[0].strip() + "\n"


def _headline() -> str:
    rows, others = (json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["rows"] for name in ("ablation", "gamma"))
    heads = (
        "accuracy %, last epoch",
        "seeds",
        "SGD",
        "SAM",
        "vSAM",
        "second gradients",
        "speed, SAM = 1",
        "with γ = 0.9",
    )
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for recipe in dict.fromkeys(row["recipe"] for row in rows if row["seeds"] >= FEWEST_SEEDS):
        sgd, sam, vsam = (_row(rows, recipe, method) for method in ("sgd", "sam", "vsam"))
        other = _row(others, recipe, "vsam-gamma-0.9")
        accuracies = " | ".join(map(_accuracy, (sgd, sam, vsam)))
        cost = f"{_share(vsam)} | {vsam['ais_ratio_to_sam']:.2f}"
        last = f"{_accuracy(other)}, {_share(other)}, {other['seeds']} seeds"
        lines.append(f"| `{recipe}` | {vsam['seeds']} | {accuracies} | {cost} | {last} |")
    return "\n".join(lines) + "\n"


def _row(rows: list[dict[str, Any]], recipe: str, label: str) -> dict[str, Any]:
    return next(row for row in rows if row["recipe"] == recipe and row["label"] == label)


def _accuracy(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.1f} ± {row['accuracy_std']:.1f}"


def _share(row: dict[str, Any]) -> str:
    return f"{100 * row['samples'] / row['steps']:.0f} %"


if __name__ == "__main__":
    main()
