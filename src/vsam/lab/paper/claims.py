"""The paper's claims, each judged by the runs of our studies: what is measured, and by which rule it is decided."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vsam.lab.paper.effects import (
    Pair,
    gap,
    gap_at_like_cost,
    psf_growth,
    quantized,
    quantized_speed,
    reuse,
    rise_with_alpha,
    speed,
)
from vsam.lab.paper.evidence import Group, NotRun, StudyRow, collect, samples_share, seed_values, with_other_gammas
from vsam.lab.paper.intervals import Interval, difference, mean_interval
from vsam.lab.paper.verdicts import (
    FEWEST_SEEDS,
    Decision,
    Verdict,
    about,
    decide,
    more,
    to_markdown,
    to_terminal,
)

__all__ = ["Verdict", "judge", "to_markdown", "to_terminal"]

# All margins were set before the runs that they judge.
_SHARE_OF_GAIN = 0.25  # of SAM's gain over SGD: what vSAM may differ by and still be "as accurate as SAM"
_LEAST_GAIN = 0.5  # points; the paper's smallest gain of SAM over SGD is 0.49
_FASTER, _FASTER_MARGIN = 40.0, 15.0  # percent; the paper's own six range from 35 to 51
_QUANTIZED = 50.0  # percent faster; the paper's own two are 54 and 65
_LIKE_COST = 0.05  # of SAM-5's passes a step
_LEAST_RISE = 2.0  # points of the steps per doubling of α, a tenth of the paper's
_LEAST_GROWTH = 5.0  # percent of ‖PSF‖


@dataclass(frozen=True)
class _Finding:
    effect: Interval | None
    verdict: Decision
    reason: str


@dataclass(frozen=True)
class _Claim:
    """A claim: its study's groups are always reported, those of other studies where they hold all that is needed."""

    sentence: str
    study: str
    unit: str
    paper: Callable[[Pair | None], str]
    measure: Callable[[Group], _Finding]
    by_gamma: bool = False  # whether vSAM with each γ of the study of γ is judged too


def judge(studies: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """A verdict for every claim of the paper and every group of runs that can speak to it.

    Each claim's own function says what is measured and which rule decides; the rules are `verdicts.more` and
    `verdicts.about`, behind the guards of `verdicts.decide`.

    Args:
        studies: by name, each as its JSON file holds it: `scale` and `rows`. A row has the keys of a comparison's row;
            `seed_list` and, in its order, `accuracies`, `samples_each` and `speed_to_sam_each` (ratios of speeds of
            runs that took turns); `alpha` or `gamma` where varied; in `norms` also `psf_norms`, for each seed the means
            of ‖PSF‖ over equal windows of the run; `recipe` and `noise` where groups differ in them.
    """
    groups = collect(studies)
    return [verdict for claim in _CLAIMS for verdict in _judge(claim, groups)]


def _judge(claim: _Claim, groups: Sequence[Group]) -> list[Verdict]:
    verdicts, missing = [], []
    if claim.by_gamma:
        groups = [each for group in groups for each in (group, *with_other_gammas(group))]
    for group in groups:
        if group.is_quantized != (claim.study == "lsq"):
            continue
        try:
            found = claim.measure(group)
        except NotRun as error:
            missing.append(str(error))
            if claim.study not in group.rows:
                continue
            found = _Finding(None, "not run", str(error))
        verdicts.append(_verdict(claim, group, found))
    reason = "; ".join(dict.fromkeys(missing)) or f"needs vsam study {claim.study}"
    return verdicts or [_verdict(claim, None, _Finding(None, "not run", reason))]


def _verdict(claim: _Claim, group: Group | None, found: _Finding) -> Verdict:
    name, scale = (group.name, group.scale) if group else ("–", "")
    pair = (group.model, group.data) if group and group.scale == "paper" else None
    numbers = f"paper: {claim.paper(pair)}"
    return Verdict(claim.sentence, name, scale, numbers, found.effect, claim.unit, found.verdict, found.reason)


def _sam_beats_sgd(group: Group) -> _Finding:
    """SAM's accuracy minus SGD's: more, with a margin of half a point."""
    found = difference(group.accuracies("sam"), group.accuracies("sgd"))
    return _finding(found, *decide(more(_LEAST_GAIN), found, group.scale), f"margin {_LEAST_GAIN} points")


def _as_accurate_as_sam(group: Group) -> _Finding:
    """vSAM's accuracy minus SAM's: about 0 or more, within a quarter of SAM's gain over SGD.

    Where SAM has no gain over SGD to keep, being like SAM means nothing: then nothing is supported.
    """
    found = difference(group.accuracies("vsam"), group.accuracies("sam"))
    margin, words = _margin(group)
    return _finding(found, *decide(about(0.0, margin, or_more=True), found, group.scale), words)


def _faster_than_sam(group: Group) -> _Finding:
    """vSAM's speed over SAM's, by seed: about 40 % faster, give or take 15."""
    found = _speedup(group)
    decision = decide(about(_FASTER, _FASTER_MARGIN), found, group.scale)
    return _finding(found, *decision, f"margin {_FASTER_MARGIN:.0f} %; vSAM sampled {_percent(group.row('vsam'))}")


def _above_sam_5(group: Group) -> _Finding:
    """vSAM's accuracy minus SAM-5's, whatever they cost: more, with a quarter of SAM's gain as margin."""
    found = difference(group.accuracies("vsam"), group.accuracies("sam-5"))
    margin, words = _margin(group)
    cost = f"vSAM sampled {_percent(group.row('vsam'))}, SAM-5 {_percent(group.row('sam-5'))}"
    return _finding(found, *decide(more(margin), found, group.scale), f"{cost}; {words}")


def _above_sam_5_at_like_cost(group: Group) -> _Finding:
    """The same for the vSAM of all α and γ whose passes a step are nearest to SAM-5's, if within 5 % of them.

    It is chosen by cost and never by accuracy.
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
    share = f"vSAM sampled {_percent(ours)}, SAM-5 {_percent(theirs)}"
    if abs(1 + samples_share(ours) - cost) > _LIKE_COST * cost:
        raise NotRun(f"no vSAM run costs about as much as SAM-5; in the nearest, {share}")
    found = difference(seed_values(ours, "accuracies"), seed_values(theirs, "accuracies"))
    margin, words = _margin(group)
    return _finding(found, *decide(more(margin), found, group.scale), f"{share}; {words}")


def _samples_grow_with_alpha(group: Group) -> _Finding:
    """For each seed the slope of the sampled share of steps over log₂ α, for three α or more: more than 0.

    The margin is 2 points of the steps per doubling of α. A slope that rests on fewer than half of the steps from one α
    to the next is no support.
    """
    rows = sorted((row for row in group.varied("alpha") if row["alpha"] > 0), key=lambda row: float(row["alpha"]))
    if len(rows) < 3:
        raise NotRun("fewer than three values of α above 0")
    samples = [seed_values(row, "samples_each") for row in rows]
    seeds = set.intersection(*(set(values) for values in samples))
    doublings = [math.log2(row["alpha"]) for row in rows]
    shares = [[100 * values[seed] / rows[0]["steps"] for values in samples] for seed in sorted(seeds)]
    found = mean_interval([statistics.linear_regression(doublings, values).slope for values in shares])
    rises = sum(low["samples"] < high["samples"] for low, high in pairwise(rows))
    words = (
        f"{rises} of {len(rows) - 1} steps from one α to the next bring more samples; margin {_LEAST_RISE:.0f} points"
    )
    verdict, why = decide(more(_LEAST_RISE), found, group.scale)
    if verdict == "supported" and 2 * rises < len(rows) - 1:
        verdict = "not supported"
    return _finding(found, verdict, why, words)


def _reuse_helps(group: Group) -> _Finding:
    """vSAM's accuracy minus vSAM-A's: more, with a quarter of SAM's gain as margin."""
    found = difference(group.accuracies("vsam"), group.accuracies("vsam-a"))
    margin, words = _margin(group)
    return _finding(found, *decide(more(margin), found, group.scale), words)


def _psf_grows(group: Group) -> _Finding:
    """For each seed the mean ‖PSF‖ over the last quarter of the run against the first: more, with a margin of 5 %.

    SAM's runs are judged, which take the PSF at every step, and vSAM's where there are none. Ratios are averaged by
    their logarithms.
    """
    rows = [row for row in group.rows.get("norms", ()) if row.get("psf_norms") and row["method"] in ("sam", "vsam")]
    if not rows:
        raise NotRun("no row of vsam study norms with the norms of SAM or vSAM")
    row = min(rows, key=lambda row: row["method"] != "sam")
    logs = [_log_growth(norms) for norms in seed_values(row, "psf_norms").values()]
    found = mean_interval([growth for growth in logs if growth is not None])
    if found is not None:
        mean, low, high = (100 * math.expm1(value) for value in (found.mean, found.low, found.high))
        found = Interval(mean, low, high, found.n)
    words = f"in runs of {row['method']}, last quarter against first{_course(row)}; margin {_LEAST_GROWTH:.0f} %"
    return _finding(found, *decide(more(_LEAST_GROWTH), found, group.scale), words)


def _faster_when_quantized(group: Group) -> _Finding:
    """vSAM's speed over SAM's, by seed: more than 50 % faster."""
    found = _speedup(group)
    beyond = found and Interval(found.mean - _QUANTIZED, found.low - _QUANTIZED, found.high - _QUANTIZED, found.n)
    return _finding(found, *decide(more(None), beyond, group.scale), f"vSAM sampled {_percent(group.row('vsam'))}")


def _speedup(group: Group) -> Interval | None:
    """By how many percent vSAM is faster than SAM, seed by seed."""
    group.row("sam")
    ratios = seed_values(group.row("vsam"), "speed_to_sam_each")
    if not ratios:
        raise NotRun("vSAM and SAM had no 20 turns in common, so their speeds were not compared")
    return mean_interval([100 * (ratio - 1) for ratio in ratios.values()])


def _finding(found: Interval | None, verdict: Decision, why: str, words: str) -> _Finding:
    return _Finding(found, verdict, "; ".join(text for text in (why, words) if text))


def _margin(group: Group) -> tuple[float | None, str]:
    """A quarter of SAM's gain over SGD in the same group, if there is one, and the words for it."""
    try:
        gain = difference(group.accuracies("sam"), group.accuracies("sgd"))
    except NotRun:
        return None, "no margin, because SAM's gain over SGD was not measured here"
    if gain is None or gain.n < FEWEST_SEEDS or not gain.low > 0:
        return None, "no margin, because SAM is not shown to be ahead of SGD here"
    margin = _SHARE_OF_GAIN * gain.mean
    return margin, f"margin {margin:.2f} points, a quarter of SAM's gain over SGD"


def _log_growth(norms: Sequence[float | None]) -> float | None:
    """The logarithm of the last quarter's mean over the first quarter's."""
    known = [value for value in norms if value is not None and value > 0]
    quarter = len(known) // 4
    if not quarter:
        return None
    return math.log(statistics.fmean(known[-quarter:]) / statistics.fmean(known[:quarter]))


def _course(row: StudyRow) -> str:
    """Where ‖PSF‖ began, where it was lowest and where it ended, averaged over seeds: it need not rise all the way."""
    known = [[value for value in norms if value is not None] for norms in seed_values(row, "psf_norms").values()]
    courses = [(norms[0], min(norms), norms[-1]) for norms in known if norms]
    if not courses:
        return ""
    first, lowest, last = (statistics.fmean(values) for values in zip(*courses, strict=True))
    return f" (first window {first:.2g}, lowest {lowest:.2g}, last {last:.2g})"


def _percent(row: StudyRow) -> str:
    varied = f" with α = {row['alpha']:g}" if row.get("alpha") is not None else ""
    return f"{100 * samples_share(row):.0f} % of the steps{varied}"


_CLAIMS = (
    _Claim("SAM is more accurate than SGD.", "table1", "points", gap("sam", "sgd"), _sam_beats_sgd),
    _Claim("vSAM is as accurate as SAM.", "table1", "points", gap("vsam", "sam"), _as_accurate_as_sam, by_gamma=True),
    _Claim("vSAM trains about 40 % faster than SAM.", "table1", "% faster", speed, _faster_than_sam),
    _Claim("vSAM is more accurate than SAM-5.", "table1", "points", gap("vsam", "sam-5"), _above_sam_5),
    _Claim(
        "vSAM is more accurate than SAM-5 at like cost.", "alpha", "points", gap_at_like_cost, _above_sam_5_at_like_cost
    ),
    _Claim(
        "The number of samples grows with α.",
        "alpha",
        "points of the steps per doubling of α",
        rise_with_alpha,
        _samples_grow_with_alpha,
    ),
    _Claim(
        "Reusing the PSF helps: vSAM is more accurate than vSAM-A.",
        "ablation",
        "points",
        reuse,
        _reuse_helps,
        by_gamma=True,
    ),
    _Claim("‖PSF‖ grows over training.", "norms", "%", psf_growth, _psf_grows),
    _Claim("With LSQ at 4 bits vSAM is as accurate as SAM.", "lsq", "points", quantized, _as_accurate_as_sam),
    _Claim(
        "With LSQ at 4 bits vSAM trains more than 50 % faster than SAM.",
        "lsq",
        "% faster",
        quantized_speed,
        _faster_when_quantized,
    ),
)
