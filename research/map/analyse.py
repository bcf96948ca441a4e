"""The map's numbers, table and figure, from the finished runs.

python -m research.map.analyse --write        results/map.json, docs/figures/map.svg, and the tables of docs/when.md

The rules are in plan.toml. A setting is on the map when all runs of its three seeds are finished.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from research.map.plan import HERE, Choice, Line, Plan, Results, Setting, read_plan
from research.map.run import read_results
from vsam.lab.files import write_atomically
from vsam.lab.report.tables import markdown_table
from vsam.lab.statistics import difference

__all__ = ["analyse", "draw", "main", "pages"]

ROOT = HERE.parents[1]
FIGURE, PAGE, NUMBERS = ROOT / "docs" / "figures" / "map", ROOT / "docs" / "when.md", HERE / "results" / "map.json"
NAMES = {
    "sam": "SAM",
    "vsam-budget": "vSAM (budget 0.2)",
    "sam-late": "late SAM",
    "msam-adaptive": "adaptive MSAM",
    "ema": "weight averaging",
    "long": "base, twice the epochs",
    "early": "base, stopped early",
}
CHEAP = ("vsam-budget", "sam-late", "msam-adaptive", "ema")
SHOWN = ("sam", *CHEAP)
FAMILIES = {"resnet8": "ResNet", "resnet20": "ResNet", "vit": "ViT", "efficientnet-lite0": "fine-tuned"}

Numbers = Mapping[str, Any]


def analyse(plan: Plan, folder: Path) -> dict[str, Any]:
    """Return the numbers of all settings whose three seeds are finished."""
    settings, environments = [], dict[str, Any]()
    for setting in plan.settings.values():
        done = read_results(folder, setting)
        if not any(run.phase == "tune" or run.seed in plan.content["seeds"] for run in plan.due(setting, done)):
            settings.append(_setting(plan, setting, done))
            for line in done.lines.values():
                environments[json.dumps(line["environment"], sort_keys=True)] = line["environment"]
    return {
        "settings": settings,
        "missing": [name for name in plan.settings if name not in {one["setting"] for one in settings}],
        "changes": plan.content["changes"],
        "environments": list(environments.values()),
    }


def _setting(plan: Plan, setting: Setting, done: Results) -> dict[str, Any]:
    _, chosen = plan.choose(setting, done)
    lines = _confirmed(plan, setting, done, chosen)
    seeds = sorted(seed for seed in lines["base"] if all(seed in found for found in lines.values()))
    base = {seed: lines["base"][seed] for seed in seeds}
    values: dict[str, Callable[[Line], float | None]] = {
        "gain": lambda line: line["accuracy"],
        "early_gain": lambda line: line["early"]["accuracy"],
        "loss_gain": lambda line: line["loss"],
        "four_bits_gain": lambda line: line["four_bits"],
    }
    methods = {}
    for name, found in lines.items():
        if name == "base":
            continue
        rows = {seed: found[seed] for seed in seeds}
        methods[name] = {
            "passes": fmean(line["passes"] for line in rows.values()) * (2 if name == "long" else 1),
            "cpu_ratio": median(rows[seed]["cpu_seconds"] / base[seed]["cpu_seconds"] for seed in seeds),
            "accuracy": fmean(line["accuracy"] for line in rows.values()),
            **{key: _difference(rows, base, value) for key, value in values.items() if _has(rows, value)},
        }
    sam = methods["sam"]["gain"]
    train, test = (fmean(number(line) for line in base.values()) for number in (_train_accuracy, _test_accuracy))
    memorised = [line["train"]["memorised"] for line in base.values() if line["train"]["memorised"] is not None]
    passed = sam is not None and sam["low"] > 0
    return {
        "setting": setting.name,
        **{key: value for key, value in asdict(setting).items() if key != "name" and value not in ((), 0.0, False)},
        "seeds": seeds,
        "base": {
            "train_accuracy": train,
            "accuracy": test,
            "gap": train - test,
            "memorised": fmean(memorised) if memorised else None,
            "early_accuracy": fmean(line["early"]["accuracy"] for line in base.values()),
            "loss": _mean(line["loss"] for line in base.values()),
            "four_bits": fmean(line["four_bits"] for line in base.values()),
        },
        "chosen": {name: choice.value for name, choice in chosen.items()},
        "at_end": [name for name, choice in chosen.items() if choice.is_at_end],
        "methods": methods,
        "gate": passed,
        "claims": _claims(lines, seeds)
        if passed and setting.name in plan.content["eight_seeds"] and len(seeds) > 7
        else {},
    }


def _confirmed(
    plan: Plan, setting: Setting, done: Results, chosen: Mapping[str, Choice]
) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the confirming runs by method and seed, and what follows from those of the base."""
    lines: dict[str, dict[int, dict[str, Any]]] = {}
    for run in plan.confirming(setting, chosen, plan.seeds(setting)):
        if (line := done.get(run)) is not None:
            name = "long" if run.epochs > setting.epochs else run.method
            lines.setdefault(name, {})[run.seed] = dict(line)
    base = lines["base"]
    # The average follows the base at no pass; its time was not counted. Its early epoch was not chosen.
    lines["ema"] = {seed: {**line, **line["averages"][0], "early": None} for seed, line in base.items()}
    lines["early"] = {seed: {**line, **line["early"]} for seed, line in base.items()}
    return lines


def _has(rows: Mapping[int, Line], value: Callable[[Line], float | None]) -> bool:
    try:
        return all(value(line) is not None for line in rows.values())
    except TypeError:  # there is no early epoch of an average
        return False


def _difference(rows: Mapping[int, Line], base: Mapping[int, Line], value: Callable[[Line], Any]) -> Numbers | None:
    found = difference({s: value(line) for s, line in rows.items()}, {s: value(line) for s, line in base.items()})
    return found and {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def _claims(lines: Mapping[str, Mapping[int, Line]], seeds: Sequence[int]) -> dict[str, Any]:
    """Return for each cheap method whether it keeps at least half of SAM's gain, one-sided at 97.5 %."""
    base, sam = lines["base"], lines["sam"]
    half = {s: (_test_accuracy(base[s]) + _test_accuracy(sam[s])) / 2 for s in seeds}
    claims = {}
    for name in CHEAP:
        found = difference({s: _test_accuracy(lines[name][s]) for s in seeds}, half)
        assert found is not None
        claims[name] = {"over_half_of_sams_gain": found.mean, "lower_bound": found.low, "holds": found.low > 0}
    return claims


def _test_accuracy(line: Line) -> float:
    return float(line["accuracy"])


def _train_accuracy(line: Line) -> float:
    return float(line["train"]["accuracy"])


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def draw(content: Numbers) -> Any:
    """Draw gain against overfitting: a panel per method, and a number per setting."""
    from matplotlib.figure import Figure

    from vsam.lab.report.figures import PALETTE, drawing_style

    with drawing_style():
        figure = Figure(figsize=(3.7, 1.75 * len(SHOWN)), layout="constrained")
        panels = figure.subplots(len(SHOWN), sharex=True)
        for axes, name in zip(panels, SHOWN, strict=True):
            axes.axhline(0, lw=1, color="#1d2126")
            for number, row in enumerate(content["settings"], start=1):
                gain, x = row["methods"][name]["gain"], row["base"]["gap"]
                family = FAMILIES.get(row["model"], "fine-tuned")
                place = {"ResNet": 1, "ViT": 2, "fine-tuned": 4}[family]
                errors = [[gain["mean"] - gain["low"]], [gain["high"] - gain["mean"]]]
                axes.errorbar(x, gain["mean"], errors, fmt="o", color=PALETTE[place][0], elinewidth=0.8, ms=3.5)
                axes.annotate(str(number), (x, gain["mean"]), (3, 2), textcoords="offset points", fontsize=6.5)
            passes = fmean(row["methods"][name]["passes"] for row in content["settings"])
            axes.set_title(f"{NAMES[name]}, {passes:.1f} passes per step", loc="left", fontsize=8.5)
            axes.margins(0.06, 0.12)
        panels[len(SHOWN) // 2].set_ylabel("gain over the tuned base, points of test accuracy")
        panels[-1].set_xlabel("overfitting of the base: training minus test accuracy, points")
    return figure


def pages(content: Numbers) -> dict[str, str]:
    """Return the tables of the page: the gains, and what was tuned and measured besides."""
    rows, more = [], []
    for number, row in enumerate(content["settings"], start=1):
        base, methods = row["base"], row["methods"]
        rows.append([str(number), _words(row), f"{base['train_accuracy']:.0f} / {base['accuracy']:.1f}"])
        rows[-1] += [_gain(methods[name]["gain"]) for name in (*SHOWN, "long")]
        more.append([str(number), f"{base['early_accuracy'] - base['accuracy']:+.1f}"])
        more[-1] += [
            _gain(methods["sam"][key], digits)
            for key, digits in (("early_gain", 1), ("loss_gain", 2), ("four_bits_gain", 1))
        ]
        more[-1] += [", ".join(f"{row['chosen'][key]:g}" for key in ("lr", "weight_decay"))]
        more[-1] += [", ".join(f"{row['chosen'][name]:g}" for name in SHOWN[:-1]), f"{row['chosen']['horizon']:g}"]
        more[-1] += [", ".join(NAMES.get(name, name) for name in row["at_end"]) or "–"]
    gains = ["", "setting", "base: training / test %", *(NAMES[name] for name in (*SHOWN, "long"))]
    facts = ["", "base stopped early", "SAM, epoch chosen", "SAM, test loss", "SAM, 4 bits", "lr, weight decay"]
    facts += ["rho: SAM, vSAM, late, MSAM", "horizon", "at an end"]
    return {"gain": markdown_table([gains, *rows], left=2).rstrip(), "more": markdown_table([facts, *more]).rstrip()}


def _gain(found: Numbers | None, digits: int = 1) -> str:
    if found is None:
        return "–"
    return f"{found['mean']:+.{digits}f} ({found['low']:+.{digits}f} to {found['high']:+.{digits}f})"


def _words(row: Numbers) -> str:
    parts = [f"{row['train']:,} {'sentences' if row['data'] == 'film-sentences' else 'images'}"]
    parts += [f"{row['epochs']} epochs"]
    parts += ["augmented"] if row.get("augment") else []
    parts += [f"{row['noise']:.0%} wrong".replace("%", " %")] if row.get("noise") else []
    data = row["data"].replace("cifar", "CIFAR-").replace("-sentences", " sentences")
    return f"{row['model']}, {data}: {', '.join(parts)}; n = {len(row['seeds'])}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, or write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results", help="the folder of the runs")
    parser.add_argument("--write", action="store_true", help="renew the JSON, the figure and the page")
    given = parser.parse_args(arguments)
    content = analyse(read_plan(), given.out)
    tables = pages(content)
    if not given.write:
        print("\n\n".join(tables.values()))
        return
    from vsam.lab.report.figures import save

    write_atomically(given.out / NUMBERS.name, json.dumps(content, indent=1) + "\n")
    if content["settings"]:
        save(draw(content), FIGURE)
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = re.sub(rf"(?s)(?<=<!-- map: {name} -->\n\n).*?(?=\n\n<!-- end -->)", lambda _, found=table: found, text)
    write_atomically(PAGE, text)


if __name__ == "__main__":
    main()
