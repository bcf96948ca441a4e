"""Accuracy against cost: how little more than SGD's cost buys SAM's accuracy.

python -m research.frontier trials --scale small     every entry's settings, tried on held-out training images
python -m research.frontier --scale small            fresh seeds with the settings that the trials chose

The rules are in frontier.toml, written before the confirming runs. Finished runs are kept: rerun a command to resume.
"""

import argparse
import math
import shlex
import statistics
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from scipy import stats

from vsam.lab.environment import choose_device
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.report.tables import markdown_table
from vsam.lab.statistics import Interval, difference, mean_interval
from vsam.lab.study import run as studies
from vsam.lab.study.plan import Parts
from vsam.lab.tune.space import change

__all__ = ["Entry", "confirming", "entries", "figures", "notes", "points", "rules", "trials"]

Settings = Mapping[str, Any]
Record = Mapping[str, Any]
TITLES = {
    "trials": "The settings of each method of the frontier, chosen on held-out training images",
    "frontier": "Accuracy against cost: SAM's accuracy for how little more than SGD",
}


@dataclass(frozen=True)
class Entry:
    """A method at a cost.

    Args:
        name: of its row.
        method: by its name in recipes.
        fixed: its fixed settings, by dotted keys.
        tried: the settings that the trials choose among.
        epochs: the fraction of the recipe's epochs that it trains for.
    """

    name: str
    method: str
    fixed: Settings
    tried: tuple[Settings, ...]
    epochs: float = 1.0

    @property
    def variant(self) -> str | None:
        """The suffix that its name adds to the method's."""
        return self.name.removeprefix(self.method).lstrip("-") or None

    def recipe(self, recipe: Recipe, settings: Settings, seed: int, **changes: Any) -> Recipe:
        """Return its run with the given settings."""
        epochs = max(1, round(self.epochs * recipe.epochs))
        own = {"method": self.method, "variant": self.variant, "seed": seed, "epochs": epochs}
        return change(recipe, {**self.fixed, **settings}, **own | changes).updated()


@cache
def rules() -> Mapping[str, Any]:
    """Return the study's rules, written down before it was run."""
    return tomllib.loads(Path(__file__).with_name("frontier.toml").read_text(encoding="utf-8"))


@cache
def entries(part: str | None = None) -> tuple[Entry, ...]:
    """Return SGD at several lengths, and every method at its costs. Later parts have only those of the rules."""
    own = rules()["part"].get(part, {})
    tried = own.get("try", {})
    lengths = [Entry(f"sgd-{cost:g}", "sgd", {}, (), cost) for cost in rules()["sgd"]["costs"]]
    others = [
        Entry(name, row["method"], row.get("set", {}), tuple(tried.get(name, row["try"])), row.get("epochs", 1.0))
        for name, row in rules()["entry"].items()
    ]
    everybody = (Entry("sgd", "sgd", {}, ()), *lengths, *others)
    if part not in rules()["parts"][1:]:
        return everybody
    return tuple(entry for entry in everybody if entry.name in own.get("entries", rules()["elsewhere"]))


def trials(scale: str, seeds: int) -> Parts:
    """Return every entry with every setting that it tries, scored on held-out training images."""
    parts: Parts = {}
    for recipe in _recipes(scale):
        held_out = recipe.data.model_copy(update={"held_out": True}).model_dump(exclude_none=True)
        parts[recipe.name] = [
            entry.recipe(recipe, settings, rules()["trial_seed"] + seed, data=held_out, variant=variant, role="trial")
            for seed in range(seeds)
            for entry in entries(recipe.name)
            for number, settings in enumerate(entry.tried if scale == "small" else entry.tried[:1])
            for variant in ["-".join(filter(None, (entry.variant, f"try-{number}")))]
        ]
    return parts


def confirming(scale: str, seeds: int) -> Parts:
    """Return SGD at all lengths, and the entries that were not screened out, with the settings that trials chose."""
    parts: Parts = {}
    for recipe in _recipes(scale):
        num_seeds = min(seeds, rules()["part"].get(recipe.name, {}).get("num_seeds", seeds))
        parts[recipe.name] = [
            entry.recipe(recipe, settings, rules()["seed"] + seed)
            for seed in range(num_seeds)
            for entry in entries(recipe.name)
            if (settings := _settings(entry, recipe.name, scale)) is not None
        ]
    return parts


def _settings(entry: Entry, part: str, scale: str) -> Settings | None:
    if not entry.tried:
        return {}
    chosen: Mapping[str, Settings] = rules()["chosen"].get(part, {})
    return chosen.get(entry.name) if scale == "small" else entry.tried[0]


def _recipes(scale: str) -> Iterator[Recipe]:
    for name in rules()["parts"] if scale == "small" else ["fashion-mini"]:
        yield load_recipe(name, tiny=scale == "tiny")


@dataclass(frozen=True)
class Point:
    """An entry of a part.

    Args:
        name: of the entry.
        cost: passes in units of SGD's run at the recipe's length.
        accuracies: of the last epoch in percent, by seed.
        to_sam: their difference to SAM's, per seed.
        kept: the fraction of SAM's gain over SGD that it keeps, None unless the gain's 95 % interval is above 0.
    """

    name: str
    cost: float
    accuracies: Mapping[int, float]
    to_sam: Interval | None
    kept: float | None

    @property
    def accuracy(self) -> float:
        """The mean."""
        return statistics.fmean(self.accuracies.values())

    @property
    def reaches_aim(self) -> bool | None:
        """Return True if it is worse than SAM by at most the standard error, None if unknown."""
        if self.to_sam is None or self.name == "sam":
            return None
        return self.to_sam.mean >= -_standard_error(self.to_sam)


def points(rows: Sequence[Record], part: str) -> list[Point]:
    """Return the entries of a part, by cost."""
    own = {row["label"]: row for row in rows if row["recipe"] == part}
    if "sgd" not in own:
        return []
    by_seed = {name: dict(zip(row["seed_list"], row["accuracies"], strict=True)) for name, row in own.items()}
    gain = difference(by_seed["sam"], by_seed["sgd"]) if "sam" in by_seed else None
    found = []
    for name, row in own.items():
        cost = row["steps"] * 2 / row["ideal_ratio"] / own["sgd"]["steps"]
        to_sgd = difference(by_seed[name], by_seed["sgd"])
        to_sam = difference(by_seed[name], by_seed["sam"]) if "sam" in by_seed and name != "sam" else None
        kept = to_sgd.mean / gain.mean if to_sgd and gain and gain.low > 0 else None
        found.append(Point(name, cost, by_seed[name], to_sam, kept))
    return sorted(found, key=lambda point: (point.cost, -point.accuracy))


def notes(content: Record) -> str:
    """Return what the page says besides the tables: entries by cost and the primary comparison, or the best trials."""
    rows = content["rows"]
    if content["study"] == "trials":
        return f"## Chosen\n\n```toml\n{tomli_w.dumps({'chosen': _chosen(rows)})}```\n"
    parts = dict.fromkeys(row["recipe"] for row in rows)
    return "\n".join([*filter(None, (_table(part, points(rows, part)) for part in parts)), _primary(rows)])


def _table(part: str, found: Sequence[Point]) -> str:
    lines = [["method", "cost", "accuracy %", "n", "− SAM, 95 % interval", "fraction of SAM's gain", "SAM's accuracy"]]
    for point in found:
        values = list(point.accuracies.values())
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        kept = "" if point.kept is None or (point.name == "sgd") else f"{100 * point.kept:.0f} %"
        aim = {None: "", True: "reached", False: "not reached"}[point.reaches_aim]
        head = [point.name, f"{point.cost:.2f}", f"{point.accuracy:.1f}{spread}", str(len(values))]
        lines.append([*head, _interval(point.to_sam), kept, aim])
    return f"## {part} by cost\n\n{markdown_table(lines)}" if found else ""


def _primary(rows: Sequence[Record]) -> str:
    asked = rules()["primary"]
    point = next((p for p in points(rows, asked["part"]) if p.name == asked["entry"]), None)
    if point is None or point.to_sam is None:
        return "## Primary comparison\n\nNot run yet.\n"
    word = "is reached" if point.reaches_aim else "is missed"
    return (
        f"## Primary comparison\n\n{asked['entry']} against SAM on {asked['part']}: {_interval(point.to_sam)} points, "
        f"standard error {_standard_error(point.to_sam):.2f}, {point.to_sam.n} seeds. The aim {word}.\n"
    )


def _interval(found: Interval | None) -> str:
    return "" if found is None else f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def _standard_error(found: Interval) -> float:
    """Return that of a mean whose 95 % interval extends t standard errors each way."""
    return (found.high - found.mean) / float(stats.t.ppf(0.975, found.n - 1)) if found.n > 1 else math.inf


def _chosen(rows: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Return the best trial of each entry in each part, as the table `chosen` of the rules."""
    chosen: dict[str, dict[str, Any]] = {}
    for part in dict.fromkeys(row["recipe"] for row in rows):
        scores = {row["label"]: row["accuracy"] for row in rows if row["recipe"] == part}
        for entry in entries(part):
            tried = [(scores.get(f"{entry.name}-try-{i}"), settings) for i, settings in enumerate(entry.tried)]
            known = [(score, settings) for score, settings in tried if score is not None]
            if known and len(known) == len(tried):
                chosen.setdefault(part, {})[entry.name] = dict(max(known, key=lambda pair: pair[0])[1])
    return chosen


def figures(content: Record) -> dict[str, Any]:
    """Return accuracy against cost with 95 % intervals over seeds, a figure per part with the entries of all parts."""
    from vsam.lab.report.figures import Point as Dot
    from vsam.lab.report.figures import points as draw
    from vsam.lab.report.figures import styles_for

    found = {}
    for part in dict.fromkeys(row["recipe"] for row in content["rows"]) if content["study"] == "frontier" else ():
        dots = []
        for point in (one for one in points(content["rows"], part) if one.name in rules()["elsewhere"]):
            reach = mean_interval(list(point.accuracies.values()))
            dots.append(Dot(point.name, point.cost, point.accuracy, y_error=reach.high - reach.mean if reach else 0.0))
        if dots:
            styles = styles_for(dot.label for dot in dots)
            found[f"frontier-{part}"] = draw(dots, styles, x="passes, SGD's run = 1", y="test accuracy, %")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing, and write numbers, tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", choices=("frontier", "trials"), default="frontier")
    parser.add_argument("--scale", choices=("tiny", "small"), default="small")
    parser.add_argument("--out", type=Path, help="default: studies/SCALE")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--only", action="append", default=[], metavar="PART")
    given = parser.parse_args(arguments)
    usual = rules()["num_seeds" if given.study == "frontier" else "num_trial_seeds"] if given.scale == "small" else 1
    parts = (confirming if given.study == "frontier" else trials)(given.scale, given.seeds or usual)
    out, wanted = given.out or Path("studies") / given.scale, studies.chosen_parts(parts, given.only, ())
    content = studies.run_study(given.study, given.scale, parts, wanted, out, None, choose_device())
    content["command"] = shlex.join(
        ["python", "-m", "research.frontier", *(sys.argv[1:] if arguments is None else arguments)]
    )
    page = studies.page(content, TITLES[given.study], notes(content))
    for path in studies.write_files(content, out, page, figures(content)):
        print(path)


if __name__ == "__main__":
    main()
