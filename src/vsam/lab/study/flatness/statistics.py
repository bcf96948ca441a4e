"""Do methods end flatter than SGD, and does flatness go with accuracy? Ratios and rank correlations with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from vsam.lab.paper.intervals import difference

__all__ = ["correlations", "ratios_to_sgd", "spearman"]

_FEWEST = 5
"""Runs that a correlation needs: with fewer, its interval says nothing."""
Row = Mapping[str, Any]


def ratios_to_sgd(rows: Sequence[Row], measures: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each measure and label: the ratio to SGD's within seeds, its 95 % interval, and the verdict.

    Args:
        rows: of one recipe, as the study records them.
        measures: by name.
    """
    reference = next((row for row in rows if row["label"] == "sgd"), None)
    if reference is None:
        return {measure: {} for measure in measures}
    found: dict[str, dict[str, Any]] = {}
    for measure in measures:
        theirs = _logarithms(reference, measure)
        found[measure] = {}
        for row in rows:
            ours = _logarithms(row, measure)
            shared = sorted(ours.keys() & theirs.keys())
            if row["label"] == "sgd" or not shared:
                continue
            ratio = math.exp(sum(ours[seed] - theirs[seed] for seed in shared) / len(shared))
            interval = difference({s: ours[s] for s in shared}, {s: theirs[s] for s in shared})
            low, high = (math.exp(interval.low), math.exp(interval.high)) if interval else (None, None)
            found[measure][row["label"]] = {
                "ratio": ratio,
                "low": low,
                "high": high,
                "n": len(shared),
                "verdict": _verdict(low, high),
            }
    return found


def _verdict(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "open"
    return "flatter" if high < 1 else "sharper" if low > 1 else "open"


def _logarithms(row: Row, measure: str) -> dict[int, float]:
    """By seed, those above their own error."""
    pairs = zip(row["seed_list"], row["minima"], strict=True)
    found = {seed: minimum["measures"][measure] for seed, minimum in pairs if minimum}
    return {seed: math.log(one["value"]) for seed, one in found.items() if _is_clear(one)}


def _is_clear(estimate: Mapping[str, Any]) -> bool:
    """Whether a number is significantly positive: above twice its error."""
    return math.isfinite(estimate["value"]) and estimate["value"] > 2 * (estimate["error"] or 0.0)


def correlations(rows: Sequence[Row], measures: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    """Each measure's rank correlation with test accuracy over the runs of one recipe; None if there are too few."""
    return {measure: _correlation(rows, measure) for measure in measures}


def _correlation(rows: Sequence[Row], measure: str) -> dict[str, Any] | None:
    runs = [
        (place, minimum["measures"][measure]["value"], accuracy)
        for place, row in enumerate(rows)
        for minimum, accuracy in zip(row["minima"], row["accuracies"], strict=True)
        if minimum and math.isfinite(minimum["measures"][measure]["value"])
    ]
    if len(runs) < _FEWEST:
        return None
    places, values, accuracies = (np.array(column) for column in zip(*runs, strict=True))
    value, low, high = spearman(values, accuracies)
    return {"value": value, "low": low, "high": high, "n": len(runs), "within": _within(places, values, accuracies)}


def spearman(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """Spearman's rank correlation and its 95 % interval, by Fisher's z with Bonett and Wright's error (2000)."""
    value = _pearson(stats.rankdata(one), stats.rankdata(other))
    if not abs(value) < 1:
        return value, value, value
    reach = stats.norm.ppf(0.975) * math.sqrt((1 + value**2 / 2) / (len(one) - 3))
    middle = math.atanh(value)
    return value, math.tanh(middle - reach), math.tanh(middle + reach)


def _within(
    places: np.ndarray[Any, Any], values: np.ndarray[Any, Any], accuracies: np.ndarray[Any, Any]
) -> float | None:
    """The rank correlation with each method's mean rank subtracted; None if methods have one run each."""
    ranks = [stats.rankdata(values), stats.rankdata(accuracies)]
    if all((places == place).sum() < 2 for place in set(places.tolist())):
        return None
    for column in ranks:
        for place in set(places.tolist()):
            column[places == place] -= column[places == place].mean()
    return _pearson(*ranks) if all(column.any() for column in ranks) else None


def _pearson(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    if one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1, 1))
