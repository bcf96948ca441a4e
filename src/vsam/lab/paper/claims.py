"""The paper's claims, each judged by our studies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vsam.lab.methods import find_method
from vsam.lab.paper import effects, measures
from vsam.lab.paper.evidence import Group, NotRun, collect, with_other_gammas
from vsam.lab.paper.measures import Finding, Measure
from vsam.lab.paper.verdicts import Verdict, to_markdown, to_terminal
from vsam.lab.study.plan import STUDIES

__all__ = ["Verdict", "judge", "to_markdown", "to_terminal"]


@dataclass(frozen=True)
class _Claim:
    """A claim. Groups of its own study are always reported, those of other studies if they have everything it needs."""

    sentence: str
    study: str
    unit: str
    paper: Callable[[effects.Pair | None], str]
    measure: Measure
    by_gamma: bool = False  # whether to judge vSAM also with each γ of the γ study


def judge(studies: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """A verdict for every claim of the paper and every group of runs that has data for it.

    Each claim's function in `measures` says what is measured and which rule decides: `verdicts.more` or
    `verdicts.about`, after the checks of `verdicts.decide`.

    Args:
        studies: by name, each as in its JSON file: `scale` and `rows`. A row has the keys of a comparison's row;
            `seed_list` and, in the same order, `accuracies`, `samples_each` and `speed_to_sam_each` (speed ratios of
            runs that alternated); `alpha` or `gamma` if varied; in `norms` also `psf_norms`, for each seed the means
            of ‖PSF‖ over equal windows of the run; `recipe` and `noise` if groups differ in them.
    """
    groups = collect(studies)
    return [verdict for claim in _CLAIMS for verdict in _judge(claim, groups)]


def _judge(claim: _Claim, groups: Sequence[Group]) -> list[Verdict]:
    verdicts, missing = [], []
    if claim.by_gamma:
        groups = [each for group in groups for each in (group, *with_other_gammas(group))]
    for group in groups:
        if group.is_quantized != STUDIES[claim.study].is_quantized:
            continue
        try:
            found = claim.measure(group)
        except NotRun as error:
            missing.append(str(error))
            if claim.study not in group.rows:
                continue
            found = Finding(None, "not run", str(error))
        verdicts.append(_verdict(claim, group, found))
    reason = "; ".join(dict.fromkeys(missing)) or f"needs vsam study {claim.study}"
    return verdicts or [_verdict(claim, None, Finding(None, "not run", reason))]


def _verdict(claim: _Claim, group: Group | None, found: Finding) -> Verdict:
    name, scale = (group.name, group.scale) if group else ("–", "")
    pair = (group.model, group.data) if group and group.scale == "paper" else None
    numbers = f"paper: {claim.paper(pair)}"
    return Verdict(claim.sentence, name, scale, numbers, found.effect, claim.unit, found.verdict, found.reason)


_FASTER, _FASTER_QUANTIZED = 40, 50  # percent, as the paper claims; its own numbers are 35 to 51, and 54 and 65
# The methods that vSAM is compared with in table 1.
_BESIDES = ("sgd", "sam-5", "sam-10", "looksam-5", "esam", "saf", "mesa", "ae-sam")


def _above(ours: str, theirs: str, sentence: str = "{} is more accurate than {}.", **options: Any) -> _Claim:
    """The claim that a method is more accurate than another, in table 1 or in the ablation."""
    study = options.pop("study", "table1")
    words = effects.gap(ours, theirs) if study == "table1" else effects.ablated(ours, theirs)
    names = find_method(ours).title, find_method(theirs).title
    return _Claim(sentence.format(*names), study, "points", words, measures.above(ours, theirs), **options)


_IN_STEPS, _BY_DOUBLING = "points of the steps", "per doubling of α"
_CLAIMS = (
    replace(_above("sam", "sgd"), measure=measures.sam_beats_sgd),
    replace(_above("vsam", "sam", "{} is as accurate as {}.", by_gamma=True), measure=measures.as_accurate_as_sam),
    _Claim(
        f"vSAM trains about {_FASTER} % faster than SAM.",
        "table1",
        "% faster",
        effects.speed,
        measures.about_faster(_FASTER),
    ),
    *(_above("vsam", label) for label in _BESIDES),
    _Claim(
        "vSAM is more accurate than SAM-5 at similar cost.",
        "alpha",
        "points",
        effects.gap_at_like_cost,
        measures.above_sam_5_at_like_cost,
    ),
    _Claim(
        "vSAM takes fewer second gradients than AE-SAM.",
        "table1",
        _IN_STEPS,
        effects.samples_saved,
        measures.fewer_samples_than_ae_sam,
    ),
    _Claim(
        "The number of samples grows with α.",
        "alpha",
        f"{_IN_STEPS} {_BY_DOUBLING}",
        effects.rise_with_alpha,
        measures.samples_grow_with_alpha,
    ),
    _Claim(
        "The accuracy grows with α.",
        "alpha",
        f"points {_BY_DOUBLING}",
        effects.gain_with_alpha,
        measures.accuracy_grows_with_alpha,
    ),
    _above("vsam-a", "sam-5", "Sampling where it matters helps: {} is more accurate than {}.", study="ablation"),
    _above("vsam", "vsam-a", "Reusing the PSF helps: {} is more accurate than {}.", study="ablation", by_gamma=True),
    # The paper shows it only as a picture, figure 2.
    _Claim("‖PSF‖ grows over training.", "norms", "%", lambda _: "grows in a figure, no numbers", measures.psf_grows),
    _Claim(
        "With LSQ at 4 bits vSAM is as accurate as SAM.",
        "lsq",
        "points",
        effects.quantized,
        measures.as_accurate_as_sam,
    ),
    _Claim(
        f"With LSQ at 4 bits vSAM trains more than {_FASTER_QUANTIZED} % faster than SAM.",
        "lsq",
        "% faster",
        effects.quantized_speed,
        measures.faster_by(_FASTER_QUANTIZED),
    ),
)
