"""The paper's numbers as effects, in words: what our own are held against."""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from vsam.lab.paper import numbers

__all__ = [
    "Pair",
    "gap",
    "gap_at_like_cost",
    "psf_growth",
    "quantized",
    "quantized_speed",
    "reuse",
    "rise_with_alpha",
    "speed",
]

Pair = tuple[str, str]

_STEPS = 78_200
_SETTING = "two networks, setting not given"
_STUDIED = ("wrn28-10", "cifar100")


def gap(ours: str, theirs: str) -> Callable[[Pair | None], str]:
    """By how much a method's accuracy is above another's in Table 1.

    Args:
        ours: the method.
        theirs: the other one.
    """

    def words(pair: Pair | None) -> str:
        tables = [numbers.table1(*pair) for pair in _pairs(pair)]
        return _span([table[ours].accuracy - table[theirs].accuracy for table in tables], "points")

    return words


def speed(pair: Pair | None) -> str:
    """How much faster vSAM is than SAM in Table 1."""
    ratios = [numbers.table1(*pair)["vsam"].of_sam for pair in _pairs(pair)]
    return _span([ratio - 100 for ratio in ratios if ratio is not None], "% faster", digits=0)


def gap_at_like_cost(pair: Pair | None) -> str:
    """SAM-5 against the vSAM of the study of α whose number of samples is nearest."""
    theirs = numbers.table1(*_STUDIED)["sam-5"]
    rows = {value: row for value, row in numbers.alpha().items() if isinstance(value, float)}
    value, ours = min(rows.items(), key=lambda item: abs((item[1].samples or 0) - (theirs.samples or 0)))
    gain = ours.accuracy - theirs.accuracy
    return f"{gain:+.2f} points with {ours.samples:,} samples (α = {value:g}) against {theirs.samples:,}, one pair"


def rise_with_alpha(pair: Pair | None) -> str:
    """The slope of the sampled share of steps over log₂ α in the study of α."""
    rows = {value: row.samples for value, row in numbers.alpha().items() if isinstance(value, float) and row.samples}
    doublings = [math.log2(value) for value in rows]
    slope = statistics.linear_regression(doublings, [100 * samples / _STEPS for samples in rows.values()]).slope
    rises = sum(low < high for low, high in pairwise(rows.values()))
    return f"{slope:+.0f} points of the steps per doubling of α, rising in {rises} of {len(rows) - 1} steps, one pair"


def reuse(pair: Pair | None) -> str:
    """vSAM against vSAM-A in the ablation."""
    tables = [numbers.ablation(data) for model, data in _pairs(pair) if model == "resnet18"]
    if not tables:
        return "no number for this pair"
    return _span([table["vsam"].accuracy - table["vsam-a"].accuracy for table in tables], "points")


def psf_growth(pair: Pair | None) -> str:
    """Figure 2, which is a picture only."""
    return "grows in a figure, without numbers"


def quantized(pair: Pair | None) -> str:
    """vSAM against SAM with 4-bit weights and activations."""
    gaps = [table["vsam"].accuracy - table["sam"].accuracy for table in _quantized()]
    return f"{_span(gaps, 'points', counted=False)}, {_SETTING}"


def quantized_speed(pair: Pair | None) -> str:
    """How much faster vSAM is than SAM with 4-bit weights and activations."""
    ratios = [table["vsam"].of_sam for table in _quantized()]
    return f"{_span([r - 100 for r in ratios if r is not None], '% faster', digits=0, counted=False)}, {_SETTING}"


def _quantized() -> list[dict[str, numbers.Published]]:
    return [numbers.lsq(model) for model in ("resnet18", "mobilenet")]


def _pairs(pair: Pair | None) -> Sequence[Pair]:
    """The pair, if it is one of Table 1's; else all six."""
    return [pair] if pair in numbers.PAIRS else numbers.PAIRS


def _span(values: Sequence[float], unit: str, *, digits: int = 2, counted: bool = True) -> str:
    low, high = f"{min(values):+.{digits}f}", f"{max(values):+.{digits}f}"
    count = f", {len(values)} pairs" if counted and len(values) > 1 else ""
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}{count}"
