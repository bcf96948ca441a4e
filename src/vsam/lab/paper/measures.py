"""What is measured for each claim of the paper in a group of runs, and which rule decides it."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from vsam.lab.paper.evidence import Group, NotRun, StudyRow, samples_share, seed_values
from vsam.lab.paper.intervals import Interval, difference, mean_interval
from vsam.lab.paper.verdicts import FEWEST_SEEDS, Decision, Rule, about, decide, more

__all__ = [
    "Finding",
    "Measure",
    "about_faster",
    "above",
    "above_sam_5_at_like_cost",
    "accuracy_grows_with_alpha",
    "as_accurate_as_sam",
    "faster_by",
    "fewer_samples_than_ae_sam",
    "psf_grows",
    "sam_beats_sgd",
    "samples_grow_with_alpha",
]

# No margin was chosen after looking at the effect it judges.
_SHARE_OF_GAIN = 0.25  # of SAM's gain over SGD: how far vSAM may differ and still be "as accurate as SAM"
_LEAST_GAIN = 0.5  # points; the paper's smallest gain of SAM over SGD is 0.49
_FASTER_MARGIN = 15.0  # percent; the paper's own six range from 35 to 51
_LIKE_COST = 0.05  # of SAM-5's passes per step
_LEAST_RISE = 2.0  # points of the steps per doubling of α, a tenth of the paper's
_LEAST_GROWTH = 5.0  # percent of ‖PSF‖
_LARGEST_LOG = 700.0  # its exponential is still finite


@dataclass(frozen=True)
class Finding:
    """A verdict with its effect and its reason."""

    effect: Interval | None
    verdict: Decision
    reason: str


Measure = Callable[[Group], Finding]


def sam_beats_sgd(group: Group) -> Finding:
    """SAM's accuracy minus SGD's; rule `more`, with a margin of half a point."""
    found = difference(group.accuracies("sam"), group.accuracies("sgd"))
    return _judge(group, more(_LEAST_GAIN), found, f"margin {_LEAST_GAIN} points")


def as_accurate_as_sam(group: Group) -> Finding:
    """vSAM's accuracy minus SAM's; rule `about` 0 or more, within a quarter of SAM's gain over SGD.

    If SAM has no gain over SGD, matching SAM means nothing, and the claim cannot be supported.
    """
    found = difference(group.accuracies("vsam"), group.accuracies("sam"))
    margin, words = _margin(group)
    return _judge(group, about(0.0, margin, or_more=True), found, words)


def about_faster(percent: float) -> Measure:
    """vSAM's speed over SAM's, by seed; rule `about` this many percent faster, ± 15."""

    def measure(group: Group) -> Finding:
        words = f"margin {_FASTER_MARGIN:.0f} %; vsam sampled {_percent(group.row('vsam'))}"
        return _judge(group, about(percent, _FASTER_MARGIN), _speedup(group), words)

    return measure


def above(ours: str, theirs: str) -> Measure:
    """One method's accuracy minus another's, whatever they cost; rule `more`, margin a quarter of SAM's gain.

    Args:
        ours: the method.
        theirs: the other one.
    """

    return lambda group: _above(group, group.row(ours), group.row(theirs))


def above_sam_5_at_like_cost(group: Group) -> Finding:
    """The same for the vSAM, of all α and γ, whose passes per step are closest to SAM-5's, if within 5 %.

    It is chosen by cost, never by accuracy.
    """
    theirs = group.row("sam-5")
    cost = 1 + samples_share(theirs)
    candidates = [*group.varied("alpha"), *group.varied("gamma")]
    try:
        candidates.insert(0, group.row("vsam"))
    except NotRun:
        if not candidates:
            raise
    ours = min(candidates, key=lambda row: abs(1 + samples_share(row) - cost))
    if abs(1 + samples_share(ours) - cost) > _LIKE_COST * cost:
        raise NotRun(f"no vSAM run costs about as much as SAM-5; in the closest, {_costs(ours, theirs)}")
    return _above(group, ours, theirs)


def fewer_samples_than_ae_sam(group: Group) -> Finding:
    """AE-SAM's second gradients minus vSAM's, in percent of the steps; rule `more` than 0."""
    theirs, ours = rows = group.row("ae-sam"), group.row("vsam")
    shares = [
        {seed: 100 * samples / row["steps"] for seed, samples in seed_values(row, "samples_each").items()}
        for row in rows
    ]
    return _judge(group, more(None), difference(*shares), _costs(ours, theirs))


def samples_grow_with_alpha(group: Group) -> Finding:
    """Per seed, the slope of the fraction of sampled steps over log₂ α; rule `more`, by 2 points per doubling of α.

    A slope does not count as support if fewer than half of the steps from one α to the next rise.
    """
    rows = _alphas(group)
    found = _slope(rows, "samples_each", 100 / rows[0]["steps"])
    rises = sum(low["samples"] < high["samples"] for low, high in pairwise(rows))
    words = (
        f"{rises} of {len(rows) - 1} steps from one α to the next bring more samples; margin {_LEAST_RISE:.0f} points"
    )
    finding = _judge(group, more(_LEAST_RISE), found, words)
    rests_on_few = finding.verdict == "supported" and 2 * rises < len(rows) - 1
    return replace(finding, verdict="not supported") if rests_on_few else finding


def accuracy_grows_with_alpha(group: Group) -> Finding:
    """Per seed, the slope of the accuracy over log₂ α; rule `more` than 0."""
    rows = _alphas(group)
    found = _slope(rows, "accuracies")
    return _judge(group, more(None), found, f"{len(rows)} values of α")


def psf_grows(group: Group) -> Finding:
    """Per seed, the mean ‖PSF‖ over the last quarter of the run against the first; rule `more`, with a margin of 5 %.

    Judged on SAM's runs, which compute the PSF at every step; on vSAM's if there are none. Ratios are averaged as
    logarithms.
    """
    rows = [row for row in group.rows.get("norms", ()) if row.get("psf_norms") and row["method"] in ("sam", "vsam")]
    if not rows:
        raise NotRun("no row of vsam study norms with the norms of SAM or vSAM")
    row = min(rows, key=lambda row: row["method"] != "sam")
    logs = [_log_growth(norms) for norms in seed_values(row, "psf_norms").values()]
    found = mean_interval([growth for growth in logs if growth is not None])
    if found is not None:
        mean, low, high = (100 * math.expm1(min(value, _LARGEST_LOG)) for value in (found.mean, found.low, found.high))
        found = Interval(mean, low, high, found.n)
    words = f"in runs of {row['method']}, last quarter against first{_course(row)}; margin {_LEAST_GROWTH:.0f} %"
    return _judge(group, more(_LEAST_GROWTH), found, words)


def faster_by(percent: float) -> Measure:
    """vSAM's speed over SAM's, by seed; rule `more` than this many percent faster."""

    def measure(group: Group) -> Finding:
        found = _speedup(group)
        beyond = found and Interval(found.mean - percent, found.low - percent, found.high - percent, found.n)
        finding = _judge(group, more(None), beyond, f"vsam sampled {_percent(group.row('vsam'))}")
        return replace(finding, effect=found)

    return measure


def _alphas(group: Group) -> list[StudyRow]:
    """The rows of the α study, sorted by α; at least three."""
    rows = sorted((row for row in group.varied("alpha") if row["alpha"] > 0), key=lambda row: float(row["alpha"]))
    if len(rows) < 3:
        raise NotRun("fewer than three values of α above 0")
    return rows


def _slope(rows: Sequence[StudyRow], key: str, factor: float = 1.0) -> Interval | None:
    """The slope of a value over log₂ α, seed by seed."""
    by_row = [seed_values(row, key) for row in rows]
    doublings = [math.log2(row["alpha"]) for row in rows]
    seeds = set.intersection(*(set(values) for values in by_row))
    lines = ([factor * values[seed] for values in by_row] for seed in sorted(seeds))
    return mean_interval([statistics.linear_regression(doublings, line).slope for line in lines])


def _speedup(group: Group) -> Interval | None:
    """By how many percent vSAM is faster than SAM, seed by seed."""
    group.row("sam")
    ratios = seed_values(group.row("vsam"), "speed_to_sam_each")
    if not ratios:
        raise NotRun("vSAM and SAM shared too few turns to compare their speeds")
    return mean_interval([100 * (ratio - 1) for ratio in ratios.values()])


def _above(group: Group, ours: StudyRow, theirs: StudyRow) -> Finding:
    """One row's accuracy minus another's; rule `more`, margin a quarter of SAM's gain."""
    found = difference(seed_values(ours, "accuracies"), seed_values(theirs, "accuracies"))
    margin, words = _margin(group)
    return _judge(group, more(margin), found, f"{_costs(ours, theirs)}; {words}")


def _judge(group: Group, rule: Rule, found: Interval | None, words: str) -> Finding:
    """The rule's verdict on an effect, unless there is too little data; the reason ends with `words`."""
    verdict, why = decide(rule, found, group.scale)
    return Finding(found, verdict, "; ".join(text for text in (why, words) if text))


def _margin(group: Group) -> tuple[float | None, str]:
    """A quarter of SAM's gain over SGD in the same group, if there is one, and a description of it."""
    try:
        gain = difference(group.accuracies("sam"), group.accuracies("sgd"))
    except NotRun:
        return None, "no margin: SAM's gain over SGD was not measured here"
    if gain is None or gain.n < FEWEST_SEEDS or not gain.low > 0:
        return None, "no margin: SAM was not shown to beat SGD here"
    margin = _SHARE_OF_GAIN * gain.mean
    return margin, f"margin {margin:.2f} points, a quarter of SAM's gain over SGD"


def _log_growth(norms: Sequence[float | None]) -> float | None:
    """The logarithm of the last quarter's mean divided by the first quarter's."""
    known = [value for value in norms if value is not None and value > 0]
    quarter = len(known) // 4
    if not quarter:
        return None
    return math.log(statistics.fmean(known[-quarter:]) / statistics.fmean(known[:quarter]))


def _course(row: StudyRow) -> str:
    """The first, lowest and last ‖PSF‖, averaged over seeds: it need not rise all the way."""
    known = [[value for value in norms if value is not None] for norms in seed_values(row, "psf_norms").values()]
    courses = [(norms[0], min(norms), norms[-1]) for norms in known if norms]
    if not courses:
        return ""
    first, lowest, last = (statistics.fmean(values) for values in zip(*courses, strict=True))
    return f" (first window {first:.2g}, lowest {lowest:.2g}, last {last:.2g})"


def _costs(ours: StudyRow, theirs: StudyRow) -> str:
    return f"{ours['method']} sampled {_percent(ours)}, {theirs['method']} {_percent(theirs)}"


def _percent(row: StudyRow) -> str:
    varied = [f"{sign} = {row[name]:g}" for name, sign in (("alpha", "α"), ("gamma", "γ")) if row.get(name) is not None]
    with_it = f" with {varied[0]}" if varied else ""
    return f"{100 * samples_share(row):.0f} % of the steps{with_it}"
