"""Groups of made up runs for tests that only look at them."""

from pathlib import Path

from vsam.lab.report.find import find_runs
from vsam.lab.report.groups import Group, group_runs
from vsam.lab.report.read import DrawnRun, read_drawn

# What a name may hold that some reader would take for more than a name.
EVIL = "</script><script>alert(1)</script> <b>&amp;</b> $x_1$ %{x} \"'|_"


def read_groups(folder: Path) -> tuple[list[Group], list[DrawnRun]]:
    return group_runs(read_drawn(path) for path in find_runs([folder]))


def rename(run: Path, method: str, recipe: str | None = None) -> None:
    """Give a finished run another method and recipe, as somebody who means harm might."""
    import json
    import tomllib

    import tomli_w

    config = tomllib.loads((run / "config.toml").read_text())
    config |= {"method": method} | ({"name": recipe} if recipe else {})
    (run / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"method": method, "label": method}), encoding="utf-8")
