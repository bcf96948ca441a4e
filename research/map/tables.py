"""The map's tables and sentences, as they are on the pages and in `vsam check --accuracy`."""

import re
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from research.map.numbers import CLAIMING, COMPARED, MEASURES, NAMES, SEARCHED, SHOWN, Numbers
from vsam.lab.report.tables import markdown_table
from vsam.lab.statistics import Interval, signed

__all__ = ["filled", "for_check", "pages"]

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
    **{name: f"ρ of {NAMES[name]}" for name in SEARCHED},
    "horizon": "horizon of the average",
}


def pages(content: Numbers) -> dict[str, str]:
    """Return the tables of the page by name."""
    rows = content["settings"]
    gains, more, chosen = [], [], []
    for number, row in enumerate(rows, start=1):
        base, methods = row["base"], row["methods"]
        memorised = "–" if base["memorised"] is None else f"{base['memorised']:.0f}"
        num_seeds = f", n = {len(row['seeds'])}" if len(row["seeds"]) >= CLAIMING else ""
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
    better, undecided, worse = _signs(row["long_over_sam"] for row in content["settings"])
    text = (
        f"Over {better + undecided + worse} settings, each method against the tuned base: SAM is "
        f"{_result(content, 'sam')}. Twice the epochs of the base, at the same cost, are {_result(content, 'long')}. "
        f"Against SAM, twice the epochs are better in {better} and worse in {worse}."
    )
    if content["missing"]:
        text += f" Settings of the plan that are still to be run: {len(content['missing'])}."
    return text


def _result(content: Numbers, name: str) -> str:
    """Return in how many settings a method is better and worse than the base, and its mean gain over all of them."""
    better, undecided, worse = _signs(row["methods"][name]["gain"] for row in content["settings"])
    text = f"better in {better}, worse in {worse}, undecided in {undecided}"
    if found := content["overall"][name]:
        text += (
            f"; mean gain {signed(found['mean'], 2)} points ({signed(found['low'], 2)} to {signed(found['high'], 2)})"
        )
    return text


def _signs(gains: Iterable[Numbers | None]) -> tuple[int, int, int]:
    """Return how many gains are above 0, undecided, and below 0."""
    signs = [Interval(**gain).sign for gain in gains if gain]
    return signs.count(1), signs.count(0), signs.count(-1)


def _counts(content: Numbers) -> str:
    """Return for each method its cost, and in how many settings it is better / undecided / worse by each measure."""
    heads = ["", "passes", "CPU time", "accuracy", "at the chosen epoch", "test loss", "4 bits"]
    lines, rows = [], content["settings"]
    for name in NAMES:
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
    found: dict[float, dict[str, list[float]]] = {}
    for row in rows:
        for name in SEARCHED:
            for rho, effect in row["radii"][name].items():
                found.setdefault(float(rho), {}).setdefault(name, []).append(effect)
    cells = [
        [f"{rho:g}", *(_effect(by_method.get(name, ())) for name in SEARCHED)]
        for rho, by_method in sorted(found.items())
    ]
    return markdown_table(
        [["ρ", *(NAMES[name] for name in SEARCHED)], *(row for row in cells if set(row[1:]) != {"–"})]
    ).rstrip()


def _effect(effects: Sequence[float]) -> str:
    return f"{signed(median(effects), 1)} ({signed(min(effects), 1)})" if len(effects) >= 5 else "–"


def _verdicts(content: Numbers) -> str:
    """Return the claims behind the gate, and the correlations."""
    lines = []
    for name, found in content["order"].items():
        lines.append([NAMES[name], signed(found["rank_correlation"], 2), f"{found['p']:.2g}"])
    num_open, num = sum(row["gate"] for row in content["settings"]), len(content["settings"])
    better, undecided, worse = _signs(row["methods"][name]["gain"] for row in content["settings"] for name in SHOWN)
    total = better + undecided + worse
    text = [
        f"The gate is open in {num_open} of {num} settings. A claim about how much of SAM's gain a cheaper method "
        f"keeps needs an open gate and eight seeds. Of the {total} intervals of SAM and the cheaper methods, "
        f"{better + worse} exclude 0. Without any effect, about {total / 20:.0f} would."
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
                item += (
                    f" {NAMES[name]} {keeps} half of it ({signed(over, 1)} above half, lower bound {signed(bound, 1)})."
                )
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
