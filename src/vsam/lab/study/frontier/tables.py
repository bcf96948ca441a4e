"""What the frontier shows: prices, differences per seed, and whether the aim is reached."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomli_w
from scipy import stats

from vsam.lab.paper.intervals import Interval, difference
from vsam.lab.study.frontier.plan import rivals, rules

__all__ = ["Point", "best_trials", "frontier_tables", "points"]

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """A rival of a part.

    Args:
        name: of the rival.
        method: by its name in recipes.
        price: passes in units of SGD's run at the recipe's length.
        accuracies: of the last epoch in percent, by seed.
        to_sam: their difference to SAM's, per seed.
        kept: the fraction of SAM's gain over SGD that it keeps, None unless the gain's 95 % interval is above 0.
        length: the steps of its run in units of the recipe's.
    """

    name: str
    method: str
    price: float
    accuracies: Mapping[int, float]
    to_sam: Interval | None
    kept: float | None
    length: float = 1.0

    @property
    def accuracy(self) -> float:
        """The mean."""
        return statistics.fmean(self.accuracies.values())

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds."""
        return statistics.stdev(self.accuracies.values()) if len(self.accuracies) > 1 else 0.0

    @property
    def reaches_aim(self) -> bool | None:
        """Whether it is worse than SAM by at most the standard error; None if unknown."""
        if self.to_sam is None or self.name == "sam":
            return None
        return self.to_sam.mean >= -_standard_error(self.to_sam)


def points(rows: Sequence[Record], part: str) -> list[Point]:
    """The rivals of a part, by price."""
    own = {row["label"]: row for row in rows if row["recipe"] == part}
    if "sgd" not in own:
        return []
    by_seed = {name: dict(zip(row["seed_list"], row["accuracies"], strict=True)) for name, row in own.items()}
    gain = difference(by_seed["sam"], by_seed["sgd"]) if "sam" in by_seed else None
    found = []
    for name, row in own.items():
        passes = row["steps"] * 2 / row["ideal_ratio"]
        to_sgd = difference(by_seed[name], by_seed["sgd"])
        found.append(
            Point(
                name,
                row["method"],
                passes / own["sgd"]["steps"],
                by_seed[name],
                difference(by_seed[name], by_seed["sam"]) if "sam" in by_seed and name != "sam" else None,
                to_sgd.mean / gain.mean if to_sgd and gain and gain.low > 0 else None,
                row["steps"] / own["sgd"]["steps"],
            )
        )
    return sorted(found, key=lambda point: (point.price, -point.accuracy))


def frontier_tables(rows: Sequence[Record]) -> str:
    """The rivals of each part by price, and last the outcome of the primary comparison."""
    sections = [_table(part, points(rows, part)) for part in dict.fromkeys(row["recipe"] for row in rows)]
    return "\n".join([*filter(None, sections), _primary(rows)])


def _table(part: str, found: Sequence[Point]) -> str:
    if not found:
        return ""
    heads = ("rival", "price", "accuracy %", "n", "− SAM, 95 % interval", "share of SAM's gain", "SAM's accuracy")
    lines = [f"## {part} by price", "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for point in found:
        kept = "" if point.kept is None or (point.method == "sgd" and point.price == 1) else f"{100 * point.kept:.0f} %"
        cells = (
            point.name,
            f"{point.price:.2f}",
            f"{point.accuracy:.1f} ± {point.deviation:.1f}",
            str(len(point.accuracies)),
            _interval(point.to_sam),
            kept,
            {None: "", True: "reached", False: "not reached"}[point.reaches_aim],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _primary(rows: Sequence[Record]) -> str:
    asked = rules()["primary"]
    point = next((p for p in points(rows, asked["part"]) if p.name == asked["rival"]), None)
    if point is None or point.to_sam is None:
        return "## Primary comparison\n\nNot run yet.\n"
    word = "is reached" if point.reaches_aim else "is missed"
    return (
        f"## Primary comparison\n\n{asked['rival']} against SAM on {asked['part']}: {_interval(point.to_sam)} points, "
        f"standard error {_standard_error(point.to_sam):.2f}, {point.to_sam.n} seeds. The aim {word}.\n"
    )


def _interval(found: Interval | None) -> str:
    return "" if found is None else f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def _standard_error(found: Interval) -> float:
    """Of a mean whose 95 % interval extends t standard errors each way."""
    return (found.high - found.mean) / float(stats.t.ppf(0.975, found.n - 1)) if found.n > 1 else math.inf


def best_trials(rows: Sequence[Record]) -> str:
    """The best trial of each rival in each part, as the table `chosen` of the rules."""
    chosen: dict[str, dict[str, Any]] = {}
    for part in dict.fromkeys(row["recipe"] for row in rows):
        scores = {row["label"]: row["accuracy"] for row in rows if row["recipe"] == part}
        for rival in rivals(part):
            tried = [(scores.get(f"{rival.name}-try-{i}"), settings) for i, settings in enumerate(rival.tried)]
            known = [(score, settings) for score, settings in tried if score is not None]
            if known and len(known) == len(tried):
                chosen.setdefault(part, {})[rival.name] = dict(max(known, key=lambda pair: pair[0])[1])
    return f"## Chosen\n\n```toml\n{tomli_w.dumps({'chosen': chosen})}```\n"
