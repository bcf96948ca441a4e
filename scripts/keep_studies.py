"""Take the results of a folder of studies into the repository.

    vsam study table1 && vsam study alpha && …     # whatever there is, in studies/small
    vsam study --compare-paper
    python scripts/keep_studies.py studies/small

Numbers and tables go to benchmarks/results/small, figures to docs/figures. Then the tables on the pages that quote them
are filled in anew: whatever stands between `<!-- FILE: SECTION -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks/results/small"
FIGURES = REPOSITORY / "docs/figures"
PAGES = tuple(REPOSITORY / page for page in ("README.md", "docs/reproduction.md", "docs/frontier.md"))
FEWEST_SEEDS = 3  # with fewer, a recipe is not in the headline yet
BLOCK = re.compile(r"(<!-- (?P<file>[\w.-]+)(?:: (?P<section>[\w. -]+?))? -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Copy, then fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the studies, e.g. studies/small")
    folder = parser.parse_args().folder
    RESULTS.mkdir(parents=True, exist_ok=True)
    FIGURES.mkdir(parents=True, exist_ok=True)
    for path in [*folder.glob("*.json"), *folder.glob("*.md")]:
        shutil.copyfile(path, RESULTS / path.name)
    for path in (folder / "figures").glob("*.svg"):
        shutil.copyfile(path, FIGURES / path.name)
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


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
