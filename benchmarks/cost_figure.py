"""Draw docs/figures/cost.svg: passes and measured time per step, from the numbers of benchmarks/step_cost.py.

python benchmarks/cost_figure.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["bars", "draw"]

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "benchmarks/results/step-cost/training/step_cost.json"
FIGURE = ROOT / "docs/figures/cost.svg"
BUDGET, SHARE, BATCH = 0.2, 0.1, 64
METHODS = {
    "sgd": ("SGD alone", 1.0),
    "msam": ("MSAM, one pass moved along the momentum", 1.0),
    "sam-part": (f"SAM, direction from {SHARE:.0%} of the batch".replace("%", " %"), 1 + SHARE),
    "vsam-budget": (f"vSAM (budget {BUDGET:g})", 1 + BUDGET),
    "sam": ("SAM", 2.0),
}
WIDTH, TOP, ROW, LEFT, UNIT = 360, 62, 56, 8, 130
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.name { font-weight: 600 }
.page { fill: #ffffff } .passes { fill: #0072b2 } .time { fill: #d55e00 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .page { fill: #131416 } .passes { fill: #56b4e9 } .time { fill: #e69f00 }
}
"""


def bars(rows: list[dict[str, Any]]) -> Iterator[tuple[str, float, float, float]]:
    """Return each method's name, passes per step, time per step as a multiple of SGD's, and seconds per step."""
    found = {(row["method"], row["kind"]): row["to_base"]["median"] for row in rows}
    second = next(row["step_ms"]["median"] / row["to_base"]["median"] for row in rows if row["method"] == "sgd") / 1e3
    for method, (name, passes) in METHODS.items():
        times = [found[method, kind] for kind in ("sampled", "plain") if (method, kind) in found]
        time = BUDGET * times[0] + (1 - BUDGET) * times[1] if len(times) == 2 else times[0]
        yield name, passes, time, time * second


def draw(content: dict[str, Any]) -> str:
    """Return the figure. Its colours follow the reader's light or dark mode."""
    lines = []
    for number, (name, passes, time, seconds) in enumerate(bars(content["times"])):
        top = TOP + number * ROW
        lines.append(f'<text class="name" x="{LEFT}" y="{top}">{name}</text>')
        pair = (("passes", passes, f"{passes:g} pass{'es' * (passes != 1)}"), ("time", time, f"{seconds:.2f} s"))
        for place, (kind, value, label) in enumerate(pair):
            y = top + 6 + 16 * place
            lines.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{value * UNIT:.1f}" height="13"/>')
            lines.append(f'<text x="{LEFT + value * UNIT + 5:.1f}" y="{y + 11}">{label}</text>')
    height = TOP + len(METHODS) * ROW - 8
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{1.25 * WIDTH:g}" '
        f'height="{1.25 * height:g}" role="img" aria-label="Passes and measured time per training step">'
    )
    legend = (
        f'<rect class="passes" x="{LEFT}" y="10" width="13" height="13"/>'
        f'<text x="{LEFT + 18}" y="21">passes per step (forward and backward)</text>'
        f'<rect class="time" x="{LEFT}" y="28" width="13" height="13"/>'
        f'<text x="{LEFT + 18}" y="39">measured time per step</text>'
    )
    page = f'<rect class="page" width="{WIDTH}" height="{height}"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", page, legend, *lines, "</svg>", ""])


if __name__ == "__main__":
    FIGURE.write_text(draw(json.loads(NUMBERS.read_text(encoding="utf-8"))), encoding="utf-8")
