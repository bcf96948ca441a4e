"""The paper's numbers as effects, in words, to compare ours with."""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from vsam.lab.paper import numbers

__all__ = [
    "Pair",
    "ablated",
    "gain_with_alpha",
    "gap",
    "gap_at_like_cost",
    "quantized",
    "quantized_speed",
    "rise_with_alpha",
    "samples_saved",
    "speed",
]

Pair = tuple[str, str]

_SETTING = "two networks, setting not stated"
_STUDIED = ("wrn28-10", "cifar100")


def gap(ours: str, theirs: str) -> Callable[[Pair | None], str]:
    """By how much one method is more accurate than another in Table 1.

    Args:
        ours: the method.
        theirs: the other one.
    """

    def words(pair: Pair | None) -> str:
        tables = [numbers.table1(*pair) for pair in _pairs(pair)]
        rows = [(table[ours], _row(table, theirs)) for table in tables]
        origin = ", theirs quoted from their paper" if any(row.source != "paper" for _, row in rows) else ""
        return _span([our.accuracy - their.accuracy for our, their in rows], "points") + origin

    return words


def speed(pair: Pair | None) -> str:
    """How much faster vSAM is than SAM in Table 1."""
    ratios = [numbers.table1(*pair)["vsam"].of_sam for pair in _pairs(pair)]
    return _span([ratio - 100 for ratio in ratios if ratio is not None], "% faster", digits=0)


def gap_at_like_cost(pair: Pair | None) -> str:
    """SAM-5 against the vSAM of the α study with the closest number of samples."""
    theirs = numbers.table1(*_STUDIED)["sam-5"]
    rows = {value: row for value, row in numbers.alpha().items() if isinstance(value, float)}
    value, ours = min(rows.items(), key=lambda item: abs((item[1].samples or 0) - (theirs.samples or 0)))
    gain = ours.accuracy - theirs.accuracy
    return f"{gain:+.2f} points with {ours.samples:,} samples (α = {value:g}) against {theirs.samples:,}, one pair"


def samples_saved(pair: Pair | None) -> str:
    """How many fewer second gradients vSAM takes than AE-SAM in Table 1."""
    tables = [numbers.table1(*pair) for pair in _pairs(pair)]
    counts = [(_row(table, "ae-sam").samples, table["vsam"].samples) for table in tables]
    return _span(
        [100 * (theirs - ours) / numbers.STEPS for theirs, ours in counts if theirs and ours], "points of the steps"
    )


def rise_with_alpha(pair: Pair | None) -> str:
    """The slope of the fraction of sampled steps over log₂ α in the α study."""
    shares = {value: 100 * row.samples / numbers.STEPS for value, row in numbers.alpha().items() if row.samples}
    return _over_alpha(shares, "points of the steps per doubling of α", digits=0)


def gain_with_alpha(pair: Pair | None) -> str:
    """The slope of the accuracy over log₂ α in the α study."""
    accuracies = {value: row.accuracy for value, row in numbers.alpha().items()}
    return _over_alpha(accuracies, "points per doubling of α", digits=2)


def ablated(ours: str, theirs: str) -> Callable[[Pair | None], str]:
    """By how much one method is more accurate than another in the ablation.

    Args:
        ours: the method.
        theirs: the other one.
    """

    def words(pair: Pair | None) -> str:
        tables = [numbers.ablation(data) for model, data in _pairs(pair) if model == "resnet18"]
        if not tables:
            return "no number for this pair"
        return _span([table[ours].accuracy - table[theirs].accuracy for table in tables], "points")

    return words


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


def _row(table: dict[str, numbers.Published], method: str) -> numbers.Published:
    """A method's row; for methods that the paper did not run, the one it quotes."""
    return table[method] if method in table else table[f"{method}-published"]


def _over_alpha(values: dict[float | str, float], unit: str, digits: int) -> str:
    by_alpha = {value: number for value, number in values.items() if isinstance(value, float)}
    slope = statistics.linear_regression([math.log2(value) for value in by_alpha], list(by_alpha.values())).slope
    rises = sum(low < high for low, high in pairwise(by_alpha.values()))
    return f"{slope:+.{digits}f} {unit}, rising in {rises} of {len(by_alpha) - 1} steps, one pair"


def _pairs(pair: Pair | None) -> Sequence[Pair]:
    """The pair, if it is in Table 1; else all six."""
    return [pair] if pair in numbers.PAIRS else numbers.PAIRS


def _span(values: Sequence[float], unit: str, *, digits: int = 2, counted: bool = True) -> str:
    low, high = f"{min(values):+.{digits}f}", f"{max(values):+.{digits}f}"
    count = f", {len(values)} pairs" if counted and len(values) > 1 else ""
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}{count}"
