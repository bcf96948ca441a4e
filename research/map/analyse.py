"""The map's numbers, tables and figure, from the finished runs.

python -m research.map.analyse --write     results/map.json, docs/figures/map.svg, the tables of docs/when.md, README
                                           and cards, and src/vsam/lab/map.json for `vsam check --accuracy`

The rules are in plan.toml. A setting is on the map when all runs of its three seeds are finished.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any, cast

from research.map.plan import HERE, Choice, Line, Plan, Results, Setting, read_plan
from research.map.run import read_results
from vsam.lab.files import write_atomically
from vsam.lab.report.tables import markdown_table
from vsam.lab.statistics import Interval, difference, mean_interval

__all__ = ["analyse", "draw", "filled", "for_check", "main", "pages"]

ROOT = HERE.parents[1]
FIGURE, NUMBERS = ROOT / "docs" / "figures" / "map", HERE / "results" / "map.json"
CARDS = {"sam": "sam", "vsam-budget": "budget", "sam-late": "sam-late", "msam-adaptive": "msam"}
PAGES = (
    *(ROOT / "docs" / f"{name}.md" for name in ("when", "choosing")),
    *(ROOT / "docs" / "methods" / f"{name}.md" for name in CARDS.values()),
    ROOT / "README.md",
    HERE / "details.md",
)
GAINS = ROOT / "src" / "vsam" / "lab" / "map.json"
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
COMPARED = (*SHOWN, "long")
CLAIMING = 8
"""Seeds that a claim needs. Only the settings that the plan names have them."""
MEASURES: dict[str, Callable[[Line], float | None]] = {
    "gain": lambda line: line["accuracy"],
    "early_gain": lambda line: line["early"] and line["early"]["accuracy"],
    "loss_gain": lambda line: line["loss"],
    "four_bits_gain": lambda line: line["four_bits"],
}
"""What is compared: accuracy after the last epoch, and at the epoch chosen on held-out images; test loss; 4 bits."""
MODELS = {
    "resnet8": "ResNet-8",
    "resnet20": "ResNet-20",
    "vit": "ViT",
    "efficientnet-lite0": "EfficientNet-Lite0",
    "minilm": "MiniLM",
    "minilm-lora": "MiniLM with LoRA",
}
CHOSEN = {
    "lr": "lr",
    "weight_decay": "weight decay",
    **{name: f"ρ of {NAMES[name]}" for name in SHOWN[:-1]},
    "horizon": "horizon of the average",
}
FAMILIES = {"resnet8": ("ResNet, SGD", 1), "resnet20": ("ResNet, SGD", 1), "vit": ("ViT, AdamW", 2)}
FINE_TUNED = ("fine-tuned, AdamW", 4)
"""Legend labels and palette indices."""

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
    settings.sort(key=lambda row: row["base"]["gap"])
    found = {
        "settings": settings,
        "overall": _overall(settings),
        "order": _order(settings),
        "missing": [name for name in plan.settings if name not in {one["setting"] for one in settings}],
        "changes": plan.content["changes"],
        "environments": list(environments.values()),
    }
    return cast("dict[str, Any]", _rounded(found))


def _rounded(found: Any) -> Any:
    """Return JSON's values with floats of six decimals, which are the same with every version of every library."""
    if isinstance(found, Mapping):
        return {key: _rounded(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_rounded(value) for value in found]
    return round(found, 6) if isinstance(found, float) else found


def _setting(plan: Plan, setting: Setting, done: Results) -> dict[str, Any]:
    _, chosen = plan.choose(setting, done)
    lines = _confirmed(plan, setting, done, chosen)
    finished = [seed for seed in plan.seeds(setting) if all(seed in found for found in lines.values())]
    seeds = finished if finished == plan.seeds(setting) else plan.content["seeds"]
    base = {seed: lines["base"][seed] for seed in seeds}
    methods = {}
    for name, found in lines.items():
        if name == "base":
            continue
        rows = {seed: found[seed] for seed in seeds}
        methods[name] = {
            "passes": fmean(line["passes"] for line in rows.values()) * (2 if name == "long" else 1),
            "cpu_ratio": median(rows[seed]["cpu_seconds"] / base[seed]["cpu_seconds"] for seed in seeds)
            if all(line["cpu_seconds"] for line in rows.values())
            else None,
            "accuracy": fmean(line["accuracy"] for line in rows.values()),
            **{key: _difference(rows, base, value) for key, value in MEASURES.items()},
        }
    both = ({seed: lines[name][seed] for seed in seeds} for name in ("long", "sam"))
    sam = methods["sam"]["gain"]
    train = fmean(line["train"]["accuracy"] for line in base.values())
    test = fmean(line["accuracy"] for line in base.values())
    memorised = [line["train"]["memorised"] for line in base.values() if line["train"]["memorised"] is not None]
    passed = sam is not None and sam["low"] > 0
    return {
        "setting": setting.name,
        "optimizer": setting.base,
        **{key: value for key, value in asdict(setting).items() if key not in ("name", "base") and value},
        "seeds": seeds,
        "base": {
            "train_accuracy": train,
            "accuracy": test,
            "gap": train - test,
            "memorised": fmean(memorised) if memorised else None,
            "loss": _mean(line["loss"] for line in base.values()),
            "four_bits": fmean(line["four_bits"] for line in base.values()),
        },
        "chosen": {name: choice.value for name, choice in chosen.items()},
        "at_end": [name for name, choice in chosen.items() if choice.is_at_end],
        "radii": _radii(plan, done, chosen),
        "methods": methods,
        "long_over_sam": _difference(*both, MEASURES["gain"]),
        "gate": passed,
        "claims": _claims(lines, seeds) if passed and len(seeds) >= CLAIMING else {},
    }


def _radii(plan: Plan, done: Results, chosen: Mapping[str, Choice]) -> dict[str, dict[str, float]]:
    """Return held-out accuracy minus that of the tuned base for every ρ of the search, by method."""
    scores: dict[tuple[str, float], list[float]] = {}
    for line in done.lines.values():
        run = line["run"]
        if run["phase"] == "tune" and all(run[name] == chosen[name].value for name in ("lr", "weight_decay")):
            scores.setdefault((run["method"], run["rho"]), []).append(line["held_out_accuracy"])
    base = fmean(scores["base", 0.0])
    return {
        method: {f"{rho:g}": fmean(found) - base for (name, rho), found in sorted(scores.items()) if name == method}
        for method in plan.methods
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
    # Both follow from the base's run: they were not timed, and no earlier epoch was chosen.
    shared = {"cpu_seconds": None, "early": None}
    lines["ema"] = {seed: {**line, **line["averages"][0], **shared} for seed, line in base.items()}
    for seed, line in base.items():
        passes = line["early"]["epoch"] / setting.epochs
        lines.setdefault("early", {})[seed] = {**line, **line["early"], **shared, "passes": passes}
    return lines


def _difference(
    rows: Mapping[int, Line], base: Mapping[int, Line], value: Callable[[Line], float | None]
) -> Numbers | None:
    """Return the paired difference to the base. None if a row has no such value."""
    ours, theirs = ({seed: value(line) for seed, line in found.items()} for found in (rows, base))
    if None in ours.values() or None in theirs.values():
        return None
    return _numbers(difference(cast("dict[int, float]", ours), cast("dict[int, float]", theirs)))


def _numbers(found: Interval | None) -> Numbers | None:
    return found and {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def _overall(settings: Sequence[Numbers]) -> dict[str, Any]:
    """Return the mean gain over all settings, with Student's interval over settings."""
    return {
        name: _numbers(mean_interval([row["methods"][name]["gain"]["mean"] for row in settings]))
        for name in (*COMPARED, "early")
    }


def _claims(lines: Mapping[str, Mapping[int, Line]], seeds: Sequence[int]) -> dict[str, Any]:
    """Return for each cheap method whether it keeps at least half of SAM's gain, one-sided at 97.5 %."""
    base, sam = lines["base"], lines["sam"]
    half = {s: (base[s]["accuracy"] + sam[s]["accuracy"]) / 2 for s in seeds}
    claims = {}
    for name in CHEAP:
        found = difference({s: lines[name][s]["accuracy"] for s in seeds}, half)
        assert found is not None
        claims[name] = {"over_half_of_sams_gain": found.mean, "lower_bound": found.low, "holds": found.low > 0}
    return claims


def _order(settings: Sequence[Numbers]) -> dict[str, Any]:
    """Return Spearman's correlation of gain and overfitting over all settings, and its p-value."""
    from scipy import stats

    if len(settings) < 3:
        return {}
    gaps = [row["base"]["gap"] for row in settings]
    found = {}
    for name in SHOWN:
        gains = _rounded([row["methods"][name]["gain"]["mean"] for row in settings])  # equal gains have equal ranks
        rank = stats.spearmanr(gaps, gains)
        found[name] = {"rank_correlation": float(rank.statistic), "p": float(rank.pvalue)}
    return found


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def draw(content: Numbers) -> Any:
    """Draw gain against overfitting for SAM, for its rival at the same cost, and for each cheaper method."""
    from matplotlib.figure import Figure

    from vsam.lab.report.figures import PALETTE, drawing_style

    rows = content["settings"]
    with drawing_style():
        figure = Figure(figsize=(3.7, 7.4), layout="constrained")
        places = [["sam", "sam"], ["long", "long"], CHEAP[:2], CHEAP[2:]]
        panels = figure.subplot_mosaic(places, sharex=True, height_ratios=[1.6, 1.2, 1, 1])
        means = [row["methods"][name]["gain"]["mean"] for row in rows for name in COMPARED]
        margin = 0.2 * (max(means) - min(means)) + 0.5
        for name, axes in panels.items():
            axes.axhline(0, lw=1, color="#1d2126")
            for number, row in enumerate(rows, start=1):
                gain, x = row["methods"][name]["gain"], row["base"]["gap"]
                color = PALETTE[FAMILIES.get(row["model"], FINE_TUNED)[1]][0]
                axes.plot([x, x], [gain["low"], gain["high"]], lw=0.8, color=color)
                face = color if Interval(**gain).is_decided else "white"
                axes.plot(x, gain["mean"], "o", color=color, mfc=face, ms=3.5 if name in CHEAP else 5, zorder=3)
                if name == "sam":
                    look: dict[str, Any] = {
                        "fontsize": 7.5,
                        "zorder": 2.1,
                        "bbox": {"fc": "white", "lw": 0, "pad": 0.2, "alpha": 0.8},
                    }
                    place = (4, 3) if number % 2 else (4, -9)
                    axes.annotate(str(number), (x, gain["mean"]), place, textcoords="offset points", **look)
            passes = fmean(row["methods"][name]["passes"] for row in rows)
            separator = "\n" if name in CHEAP else ": "
            axes.set_title(f"{NAMES[name]}{separator}{passes:.1f} passes", loc="left", fontsize=8.5)
            axes.set_ylim(min(means) - margin, max(means) + margin)
        panels["sam"].tick_params(labelbottom=True)
        panels["sam"].set_ylabel("gain over the tuned base, points")
        for color, words in sorted({(PALETTE[place][0], words) for words, place in (*FAMILIES.values(), FINE_TUNED)}):
            panels["sam"].plot([], [], "o", color=color, ms=5, label=words)
        legend_style: dict[str, Any] = {"fontsize": 8, "frameon": False, "handletextpad": 0.1, "columnspacing": 1}
        figure.legend(loc="outside upper left", ncols=3, **legend_style)
        figure.supxlabel("training minus test accuracy of the base, points", fontsize=8.5)
    return figure


def pages(content: Numbers) -> dict[str, str]:
    """Return the tables of the page by name."""
    rows = content["settings"]
    gains, more, chosen = [], [], []
    for number, row in enumerate(rows, start=1):
        base, methods = row["base"], row["methods"]
        memorised = "–" if base["memorised"] is None else f"{base['memorised']:.0f}"
        num_seeds = f", n = {len(row['seeds'])}" if len(row["seeds"]) > 3 else ""
        gains.append(
            [f"{number}. {_describe(row)}{num_seeds}", f"{base['train_accuracy']:.0f} / {base['accuracy']:.1f}"]
        )
        gains[-1] += [_gain(methods[name]["gain"]) for name in COMPARED]
        more.append([str(number), memorised, _gain(methods["early"]["gain"]), _gain(methods["sam"]["early_gain"])])
        more[-1] += [_gain(methods["sam"]["loss_gain"], 2), _gain(methods["sam"]["four_bits_gain"])]
        chosen.append([str(number), *(_choice(row, name) for name in CHOSEN)])
    names = [NAMES[name] for name in COMPARED]
    others = ["wrong labels memorised %", "base stopped early", "SAM, chosen epoch", "SAM, test loss", "SAM, 4 bits"]
    return {
        "answer": _answer(content),
        "gain": markdown_table([["setting", "base: training / test %", *names], *gains, *_footer(content)]).rstrip(),
        "count": _counts(content),
        "claims": _verdicts(content),
        "more": markdown_table([["", *others], *more]).rstrip(),
        "chosen": markdown_table([["", *CHOSEN.values()], *chosen]).rstrip(),
        "rho": _rho_table(rows),
        "changes": "\n".join(f"- {change}" for change in content["changes"]),
        **{name: f"Of {len(rows)} settings, {NAMES[name]} is {_result(content, name)}." for name in SHOWN},
    }


def _footer(content: Numbers) -> list[list[str]]:
    """Return the last rows of the table of gains: the mean, and the counts."""
    counts = [_signs(row["methods"][name]["gain"] for row in content["settings"]) for name in COMPARED]
    return [
        ["mean over the settings", "", *(_gain(content["overall"][name]) for name in COMPARED)],
        ["better / undecided / worse", "", *(" / ".join(map(str, found)) for found in counts)],
    ]


def _choice(row: Numbers, name: str) -> str:
    """Return a chosen value, with a star if it is still at an end of its list."""
    return f"{row['chosen'][name]:g}{' *' if name in row['at_end'] else ''}"


def for_check(content: Numbers) -> list[dict[str, Any]]:
    """Return what `vsam check --accuracy` shows of the settings."""
    return [
        {
            "setting": f"{number}. {_describe(row)}",
            "n": len(row["seeds"]),
            "train_accuracy": row["base"]["train_accuracy"],
            "test_accuracy": row["base"]["accuracy"],
            "gains": {NAMES[name]: row["methods"][name]["gain"] for name in COMPARED},
        }
        for number, row in enumerate(content["settings"], start=1)
    ]


def filled(text: str, content: Numbers) -> str:
    """Replace the generated blocks of a page."""
    for name, table in pages(content).items():
        text = re.sub(rf"(?s)(?<=<!-- map: {name} -->\n\n).*?(?=\n\n<!-- end -->)", lambda _, found=table: found, text)
    return text


def _answer(content: Numbers) -> str:
    """Return the results of SAM and of twice the epochs, which cost the same."""
    direct = [Interval(**row["long_over_sam"]).sign for row in content["settings"]]
    text = (
        f"Over {len(direct)} settings, each method against the tuned base: SAM is {_result(content, 'sam')}. Twice the "
    )
    text += f"epochs of the base, at the same cost, are {_result(content, 'long')}. Against SAM, twice the epochs are "
    text += f"better in {direct.count(1)} and worse in {direct.count(-1)}."
    if content["missing"]:
        text += f" Settings of the plan that are still to be run: {len(content['missing'])}."
    return text


def _result(content: Numbers, name: str) -> str:
    """Return in how many settings a method is better and worse than the base, and its mean gain over all of them."""
    better, undecided, worse = _signs(row["methods"][name]["gain"] for row in content["settings"])
    text = f"better in {better}, worse in {worse}, undecided in {undecided}"
    if found := content["overall"][name]:
        text += f"; mean gain {found['mean']:+.2f} points ({found['low']:+.2f} to {found['high']:+.2f})"
    return text


def _signs(gains: Iterable[Numbers | None]) -> tuple[int, int, int]:
    """Return how many gains are above 0, undecided, and below 0."""
    signs = [Interval(**gain).sign for gain in gains if gain]
    return signs.count(1), signs.count(0), signs.count(-1)


def _counts(content: Numbers) -> str:
    """Return for each method its cost, and in how many settings it is better / undecided / worse by each measure."""
    heads = ["", "passes", "CPU time", "accuracy", "at the chosen epoch", "test loss", "4 bits"]
    lines, rows = [], content["settings"]
    for name in content["overall"]:
        found = [row["methods"][name] for row in rows]
        times = [one["cpu_ratio"] for one in found if one["cpu_ratio"]]
        passes = fmean(one["passes"] for one in found)
        lines.append([NAMES[name], f"{passes:.2f}", f"{median(times):.2f}" if times else "–"])
        for key in MEASURES:
            signs = _signs(one[key] for one in found)
            signs = signs[::-1] if key == "loss_gain" else signs
            lines[-1].append(" / ".join(map(str, signs)) if any(signs) else "–")
    return markdown_table([heads, *lines]).rstrip()


def _rho_table(rows: Sequence[Numbers]) -> str:
    """Return the median and the worst effect of each ρ that at least five settings have tried."""
    methods = [name for name in SHOWN if name != "ema"]
    found: dict[float, dict[str, list[float]]] = {}
    for row in rows:
        for name in methods:
            for rho, effect in row["radii"][name].items():
                found.setdefault(float(rho), {}).setdefault(name, []).append(effect)
    cells = [
        [f"{rho:g}", *(_effect(by_method.get(name, ())) for name in methods)]
        for rho, by_method in sorted(found.items())
    ]
    return markdown_table(
        [["ρ", *(NAMES[name] for name in methods)], *(row for row in cells if set(row[1:]) != {"–"})]
    ).rstrip()


def _effect(effects: Sequence[float]) -> str:
    return f"{median(effects):+.1f} ({min(effects):+.1f})" if len(effects) >= 5 else "–"


def _verdicts(content: Numbers) -> str:
    """Return the claims behind the gate, and the correlations."""
    lines = []
    for name, found in content["order"].items():
        lines.append([NAMES[name], f"{found['rank_correlation']:+.2f}", f"{found['p']:.2g}"])
    num_open, num = sum(row["gate"] for row in content["settings"]), len(content["settings"])
    better, undecided, worse = _signs(row["methods"][name]["gain"] for row in content["settings"] for name in SHOWN)
    total = better + undecided + worse
    text = [
        f"The gate is open in {num_open} of {num} settings. In the others, nothing is claimed about how much of SAM's "
        f"gain a cheaper method keeps. Of the {total} intervals of SAM and the cheaper methods, {better + worse} "
        f"exclude 0. Without any effect, about {total / 20:.0f} would."
    ]
    text += [markdown_table([["", "rank correlation of gain and overfitting", "p"], *lines]).rstrip()]
    for number, row in enumerate(content["settings"], start=1):
        if len(row["seeds"]) >= CLAIMING:
            gain = _gain(row["methods"]["sam"]["gain"])
            verdict = "the gate is open" if row["gate"] else "the gate is closed, so nothing is claimed"
            item = f"- Setting {number} ({_describe(row)}): SAM {gain} points: {verdict}."
            for name, claim in row["claims"].items():
                keeps = "keeps" if claim["holds"] else "is not shown to keep"
                over, bound = claim["over_half_of_sams_gain"], claim["lower_bound"]
                item += f" {NAMES[name]} {keeps} half of it ({over:+.1f} above half, lower bound {bound:+.1f})."
            text.append(item)
    return "\n\n".join([*text[:2], "\n".join(text[2:])]).rstrip()


def _gain(found: Numbers | None, digits: int = 1) -> str:
    """Return the text of an interval, bold if it excludes 0."""
    if found is None:
        return "–"
    interval = Interval(**found)
    text = interval.text(digits).replace(" ", "\N{NO-BREAK SPACE}")
    return f"**{text}**" if interval.is_decided else text


def _describe(row: Numbers) -> str:
    parts = [f"{row['train']:,} {'sentences' if row['data'] == 'film-sentences' else 'images'}"]
    parts += [f"{row['epochs']} epochs"]
    parts += ["augmented"] if row.get("augment") else []
    parts += [f"{row['noise']:.0%} wrong".replace("%", " %")] if row.get("noise") else []
    data = row["data"].replace("cifar", "CIFAR-").replace("-sentences", " sentences")
    return f"{MODELS[row['model']]}, {data}: {', '.join(parts)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, or write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the JSON, the figure and the pages")
    given = parser.parse_args(arguments)
    content = analyse(read_plan(), NUMBERS.parent)
    if not given.write:
        print("\n\n".join(pages(content).values()))
        return
    from vsam.lab.report.figures import save

    write_atomically(NUMBERS, json.dumps(content, indent=1) + "\n")
    write_atomically(GAINS, json.dumps(for_check(content), indent=1) + "\n")
    save(draw(content), FIGURE)[1].unlink()  # pages show the SVG
    for page in PAGES:
        write_atomically(page, filled(page.read_text(encoding="utf-8"), content))


if __name__ == "__main__":
    main()
