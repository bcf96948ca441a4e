"""The map's numbers: gains, intervals, gate and claims of every finished setting."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any, cast

from research.map.plan import Choice, Line, Plan, Results, Setting
from research.map.run import read_results
from vsam.lab.statistics import Interval, difference, mean_interval

__all__ = ["CHEAP", "CLAIMING", "COMPARED", "MEASURES", "NAMES", "SEARCHED", "SHOWN", "Numbers", "analyse"]

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
SEARCHED = ("sam", "vsam-budget", "sam-late", "msam-adaptive")
"""The methods whose ρ is searched."""
SHOWN = (*SEARCHED, "ema")
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
    return {name: _numbers(mean_interval([row["methods"][name]["gain"]["mean"] for row in settings])) for name in NAMES}


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
