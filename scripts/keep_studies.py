"""Take the results of a folder of studies into the repository.

    vsam study table1 && python -m research.frontier && …     # whatever there is, in studies/small
    python scripts/keep_studies.py studies/small

Numbers go to benchmarks/results/small, with pages and figures drawn from them, and figures to docs/figures. Then the
tables on the pages that quote them are filled in: whatever stands between `<!-- FILE: SECTION -->` and `<!-- end -->`.
With the folder benchmarks/results/small itself, pages and figures are drawn again from the numbers.

With --add, rows that are in the repository and not in the folder stay, for a study of which only a part was run again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from research import flatness, frontier, lemma2
from vsam.lab.report.figures import save
from vsam.lab.study import run
from vsam.lab.study.claims import judge, read_studies, to_markdown
from vsam.lab.study.plan import STUDIES

Record = dict[str, Any]

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks/results/small"
FIGURES = REPOSITORY / "docs/figures"
PAGES = [REPOSITORY / f"{name}.md" for name in ("docs/reproduction", "docs/flatness", "research/frontier")]
NAMES = (*STUDIES, "frontier", "trials", "flatness", "lemma2")
FEWEST_SEEDS = 3  # with fewer, a recipe is not in the headline yet
BLOCK = re.compile(r"(<!-- (?P<file>[\w.-]+)(?:: (?P<section>[\w. -]+?))? -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Copy the numbers, draw them, and fill the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the studies, e.g. studies/small")
    parser.add_argument("--add", action="store_true", help="keep the rows that the folder lacks")
    arguments = parser.parse_args()
    for folder in (RESULTS, FIGURES):
        folder.mkdir(parents=True, exist_ok=True)
    before = read_studies(RESULTS, NAMES) if arguments.add else {}
    for name, content in read_studies(arguments.folder, NAMES).items():
        _write(_added(before[name], content) if name in before else content)
    (RESULTS / "claims.md").write_text(to_markdown(judge(read_studies(RESULTS))), encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def page(content: Record) -> str:
    """A study's page, from its numbers."""
    if content["study"] == "lemma2":
        return lemma2.page(content)
    if content["study"] == "flatness":
        return run.page(content, flatness.TITLE, flatness.notes(content))
    if content["study"] in frontier.TITLES:
        return run.page(content, frontier.TITLES[content["study"]], frontier.notes(content))
    return run.page(content)


def figures(content: Record) -> dict[str, Any]:
    """A study's figures by name, from its numbers."""
    if content["study"] in frontier.TITLES:  # an earlier study: its tables are kept, without pictures
        return {}
    return {"lemma2": lemma2, "flatness": flatness}.get(content["study"], run).figures(content)


def _added(before: Record, now: Record) -> Record:
    """The new results with the rows that they lack, each part's in one place."""
    known = {(row["recipe"], row["label"]) for row in now["rows"]}
    missing = [row for row in before["rows"] if (row["recipe"], row["label"]) not in known]
    rows = [*missing, *now["rows"]]
    parts = list(dict.fromkeys(row["recipe"] for row in rows))
    return {
        **now,
        "rows": sorted(rows, key=lambda row: parts.index(row["recipe"])),
        "training_seconds": before["training_seconds"] + now["training_seconds"],
        "environments": [*before["environments"], *(e for e in now["environments"] if e not in before["environments"])],
    }


def _write(content: Record) -> None:
    """Write the numbers, page and figures of a study, without the folder of the machine that ran it."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    (RESULTS / f"{content['study']}.json").write_text(re.sub(r" --out \S+?(?=[ \"\n`])", "", text), encoding="utf-8")
    (RESULTS / f"{content['study']}.md").write_text(page(content), encoding="utf-8")
    for name, figure in figures(content).items():
        save(figure, FIGURES / name)[1].unlink()  # pages show the SVG


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
