"""Print the tables of methods in README.md and docs/: `python scripts/method_tables.py --write` renews them."""

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

from vsam.registry import METHODS, Method

ROOT = Path(__file__).resolve().parents[1]
README, CARDS, COSTS = ROOT / "README.md", ROOT / "docs" / "methods", ROOT / "docs" / "costs.md"
FILES = (README, CARDS / "index.md", COSTS)
TABLE = re.compile(r"(?<=<!-- all methods -->\n\n).*?(?=\n\n<!-- end of all methods -->)", re.DOTALL)
HEADINGS = ("class", "name", "when × where × between", "passes per step", "memory", "paper")
SHORT = {"name": 0, "cost": 3, "memory": 4, "paper": 5}  # the README's columns


def renewed(path: Path) -> str:
    """Return the text of a page with its table as the registry has it."""
    if path == COSTS:
        table = [("name", "kept", "in the second pass"), *(_memory(row) for row in METHODS.values())]
    else:
        table = [HEADINGS, *(_facts(row, path.parent) for row in METHODS.values())]
        if path == README:
            table = [tuple(SHORT), *(tuple(row[column] for column in SHORT.values()) for row in table[1:])]
    lines = [f"| {' | '.join(cells)} |" for cells in (table[0], ["---"] * len(table[0]), *table[1:])]
    return TABLE.sub(lambda _: "\n".join(lines), path.read_text(encoding="utf-8"))


def _memory(row: Method) -> tuple[str, ...]:
    named = (f"{len(one)}: {', '.join(one)}" if one else "0" for one in (row.kept, row.copied))
    return (f"`{row.name}`", *named)


def _facts(row: Method, folder: Path) -> tuple[str, ...]:
    chosen = {**row.defaults, **row.fixed, **dict.fromkeys(row.needs[:1], 0.2)}
    settings = ", ".join(f"{key}={_code(value)}" for key, value in chosen.items())
    card = os.path.relpath(CARDS / f"{row.card or row.name}.md", folder)
    parts, comma, subset = row.parts.partition(",")
    return (
        f"[`{row.kind}{settings and f'({settings})'}`]({card})",
        f"`{row.name}`",
        " × ".join(f"`{part}`" for part in parts.split(" × ")) + comma + subset,
        re.sub(" pass(es)? per step", "", row.cost),
        f"{len(row.kept)} + {len(row.copied)}",
        f"[{row.paper}]({row.link}){row.note and f', {row.note}'}" if row.paper else "ours, experimental",
    )


def _code(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the pages")
    is_writing = parser.parse_args().write
    for path in FILES:
        if is_writing:
            path.write_text(renewed(path), encoding="utf-8")
        else:
            print(TABLE.search(renewed(path))[0])


if __name__ == "__main__":
    main()
