"""Write the map's numbers, tables and figure, from the finished runs.

python -m research.map.analyse --write     results/map.json, docs/figures/map.svg, the tables of docs/when.md, README
                                           and cards, and src/vsam/lab/map.json for `vsam check --accuracy`

The rules are in plan.toml. A setting is on the map when all runs of its three seeds are finished.
"""

import argparse
import json
from collections.abc import Sequence

from research.map.figure import draw
from research.map.numbers import analyse
from research.map.plan import HERE, read_plan
from research.map.tables import filled, for_check, pages
from vsam.lab.files import write_atomically
from vsam.lab.report.figures import save

__all__ = ["FIGURE", "GAINS", "NUMBERS", "PAGES", "main"]

ROOT = HERE.parents[1]
FIGURE, NUMBERS = ROOT / "docs" / "figures" / "map", HERE / "results" / "map.json"
PAGES = (
    *(ROOT / "docs" / f"{name}.md" for name in ("when", "choosing")),
    *(ROOT / "docs" / "methods" / f"{name}.md" for name in ("sam", "budget", "sam-late", "msam")),
    ROOT / "README.md",
    HERE / "details.md",
)
GAINS = ROOT / "src" / "vsam" / "lab" / "map.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, or write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the JSON, the figure and the pages")
    given = parser.parse_args(arguments)
    content = analyse(read_plan(), NUMBERS.parent)
    if not given.write:
        print("\n\n".join(pages(content).values()))
        return
    write_atomically(NUMBERS, json.dumps(content, indent=1) + "\n")
    write_atomically(GAINS, json.dumps(for_check(content), indent=1) + "\n")
    save(draw(content), FIGURE)[1].unlink()  # pages show the SVG
    for page in PAGES:
        write_atomically(page, filled(page.read_text(encoding="utf-8"), content))


if __name__ == "__main__":
    main()
