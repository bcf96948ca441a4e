"""Every claim on rows made for every verdict, with intervals worked out by hand."""

import contextlib
import itertools
import json
import math

import pytest

from vsam.lab.errors import UserError
from vsam.lab.statistics import Interval
from vsam.lab.study.claims import about, judge, judged, more, overview, read_studies, to_dict, to_markdown

UNDECIDED = "undecided"
STEPS = 1000
# Student's t for two degrees of freedom: three values x−d, x, x+d have the interval x ± 4.30265·d/√3 = 2.48414·d.
REACH = 4.302653 / math.sqrt(3)
PREMISE = "SAM is more accurate than SGD."
EQUAL = "vSAM is as accurate as SAM."
FASTER = "vSAM trains about 40 % faster than SAM."
BESIDES = [
    f"vSAM is more accurate than {name}."
    for name in ("SGD", "SAM-5", "SAM-10", "LookSAM-5", "ESAM", "SAF", "MESA", "AE-SAM")
]
SAM_5, AE_SAM = BESIDES[1], BESIDES[-1]
LIKE_COST = "vSAM is more accurate than SAM-5 at similar cost."
FEWER = "vSAM takes fewer second gradients than AE-SAM."
GROWS = "The number of samples grows with α."
GAINS = "The accuracy grows with α."
SAMPLING = "Sampling where it matters helps: vSAM-A is more accurate than SAM-5."
REUSE = "Reusing the PSF helps: vSAM is more accurate than vSAM-A."
PSF = "‖PSF‖ grows over training."
LSQ = "With LSQ at 4 bits vSAM is as accurate as SAM."
LSQ_FASTER = "With LSQ at 4 bits vSAM trains more than 50 % faster than SAM."
CLAIMS = [
    *(PREMISE, EQUAL, FASTER, *BESIDES, LIKE_COST, FEWER),
    *(GROWS, GAINS, SAMPLING, REUSE, PSF, LSQ, LSQ_FASTER),
]


def row(method, accuracies=(), samples=350.0, **more):
    seeds = list(range(len(accuracies)))
    numbers = {"data": "cifar10", "model": "resnet8", "method": method, "steps": STEPS, "samples": samples}
    return {**numbers, "seeds": len(seeds), "seed_list": seeds, "accuracies": list(accuracies), **more}


def spread(mean, width=0.1):
    return [mean - width, mean, mean + width]


def paired(mean, width):
    """Differences of mean − width, mean, mean + width to `spread(70)`."""
    return [base + mean + sign * width for base, sign in zip(spread(70.0), (-1, 0, 1), strict=True)]


def study(name, *rows, scale="small"):
    return {name: {"study": name, "scale": scale, "rows": list(rows)}}


def verdicts(claim, *parts):
    studies = {name: content for part in parts for name, content in part.items()}
    return [verdict for verdict in judge(studies) if verdict.claim == claim]


def verdict(claim, *parts):
    (found,) = verdicts(claim, *parts)
    return found


def gain_of_four(*more, **settings):
    """A table in which SAM is 4 points ahead of SGD (2.76 to 5.24): the margin is one point."""
    return study("table1", row("sgd", spread(70.0)), row("sam", paired(4.0, 0.5)), *more, **settings)


def test_without_studies_nothing_was_run():
    found = judge({})
    assert [verdict.claim for verdict in found] == CLAIMS
    assert {verdict.verdict for verdict in found} == {"not run"}
    assert {verdict.scale for verdict in found} == {""}
    assert all(verdict.paper.startswith("paper: ") and verdict.effect is None for verdict in found)
    assert "vsam study table1" in found[0].reason


def test_a_claim_with_rows_missing_was_not_run():
    found = verdict(EQUAL, study("table1", row("sgd", spread(70.0)), row("sam", spread(72.0))))
    assert (found.verdict, found.reason) == ("not run", "no row for vsam")
    assert found.group == "resnet8 on cifar10, 1,000 steps"


@pytest.mark.parametrize(
    ("mean", "width", "expected"),
    [
        (4.0, 0.5, "supported"),
        (4.0, 2.0, UNDECIDED),
        (1.0, 0.5, UNDECIDED),
        (0.1, 0.1, "not supported"),
        (-4.0, 0.5, "contradicted"),
    ],
)
def test_the_premise_that_sam_beats_sgd(mean, width, expected):
    found = verdict(PREMISE, study("table1", row("sgd", spread(70.0)), row("sam", paired(mean, width))))
    assert found.verdict == expected
    assert (found.effect.mean, found.effect.n, found.effect.is_paired) == (pytest.approx(mean), 3, True)
    assert found.effect.low == pytest.approx(mean - REACH * width, abs=1e-5)
    assert found.effect.high == pytest.approx(mean + REACH * width, abs=1e-5)
    assert found.paper == "paper: +0.49 to +2.37 points, 6 pairs"


@pytest.mark.parametrize(
    ("mean", "width", "expected"),
    [
        (0.0, 0.3, "supported"),
        (-0.4, 0.1, "supported"),
        (0.0, 1.0, UNDECIDED),
        (-0.9, 0.3, "not supported"),
        (3.0, 0.3, "supported"),
        (-3.0, 0.3, "contradicted"),
    ],
)
def test_as_accurate_as_sam_means_within_a_quarter_of_its_gain(mean, width, expected):
    ours = [sam + mean + sign * width for sam, sign in zip(paired(4.0, 0.5), (1, -1, 0), strict=True)]
    found = verdict(EQUAL, gain_of_four(row("vsam", ours)))
    assert found.verdict == expected
    assert "margin 1.00 points" in found.reason
    assert found.effect.high - found.effect.low == pytest.approx(2 * REACH * width, abs=1e-5)


def test_being_like_sam_where_sam_gains_nothing_supports_nothing():
    rows = [row(name, accuracies) for name, accuracies in (("sgd", spread(70.0)), ("sam", paired(0.0, 0.2)))]
    found = verdict(EQUAL, study("table1", *rows, row("vsam", paired(0.001, 0.19))))
    assert found.verdict == UNDECIDED
    assert "not shown to beat SGD" in found.reason
    assert verdict(EQUAL, study("table1", *rows, row("vsam", paired(-9.0, 0.3)))).verdict == "not supported"


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([1.39, 1.40, 1.41], "supported"),
        ([1.2, 1.4, 1.6], UNDECIDED),
        ([1.02, 1.03, 1.04], "contradicted"),
        ([1.25, 1.27, 1.29], "not supported"),
        ([1.9, 1.92, 1.94], "not supported"),
        ([1.39, 1.41], UNDECIDED),
    ],
)
def test_forty_percent_faster_give_or_take_fifteen(ratios, expected):
    accuracies = [70.0 + i for i in range(len(ratios))]
    ours = row("vsam", accuracies, speed_to_sam_each=ratios)
    found = verdict(FASTER, study("table1", row("sam", accuracies), ours))
    assert found.verdict == expected
    assert found.paper == "paper: +35 to +51 % faster, 6 pairs"
    assert "vsam sampled 35 % of the steps" in found.reason


def test_runs_that_took_no_turns_have_no_speeds():
    ours = row("vsam", spread(70.0), speed_to_sam_each=[None] * 3)
    found = verdict(FASTER, study("table1", row("sam", spread(70.0)), ours))
    assert (found.verdict, found.effect) == ("not run", None)
    assert "shared too few turns" in found.reason


def test_the_speed_has_its_interval():
    ours = row("vsam", spread(70.0), speed_to_sam_each=[1.38, 1.40, 1.42])
    effect = verdict(FASTER, study("table1", row("sam", spread(70.0)), ours)).effect
    assert effect.mean == pytest.approx(40.0)
    assert (effect.low, effect.high) == pytest.approx((40 - 2 * REACH, 40 + 2 * REACH), abs=1e-4)


@pytest.mark.parametrize(
    ("mean", "width", "expected"),
    [(2.0, 0.5, "supported"), (0.1, 0.2, "not supported"), (0.1, 2.0, UNDECIDED), (-2.0, 0.5, "contradicted")],
)
def test_vsam_over_sam_5_and_over_vsam_a(mean, width, expected):
    table = gain_of_four(row("sam-5", spread(70.0), samples=200), row("vsam", paired(mean, width)))
    found = verdict(SAM_5, table)
    assert found.verdict == expected
    assert "vsam sampled 35 % of the steps, sam-5 sampled 20 % of the steps" in found.reason
    reuse = study("ablation", row("vsam-a", spread(70.0)))
    assert verdict(REUSE, table, reuse).verdict == expected


def test_every_method_of_table_1_is_one_that_vsam_is_held_against():
    others = ("sam-5", "sam-10", "looksam-5", "esam", "saf", "mesa", "ae-sam")
    table = gain_of_four(row("vsam", paired(3.0, 0.2)), *(row(method, spread(70.0)) for method in others))
    assert [verdict(claim, table).verdict for claim in BESIDES] == ["supported"] * 8
    assert verdict(AE_SAM, table).paper == "paper: -0.41 to +0.28 points, 6 pairs, theirs quoted from their paper"
    assert verdict(AE_SAM, table).effect.mean == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [((300, 310, 320), "supported"), ((400, 500, 600), UNDECIDED), ((600, 610, 620), "contradicted")],
)
def test_vsam_takes_fewer_second_gradients_than_ae_sam(ours, expected):
    theirs = row("ae-sam", spread(70.0), 505, samples_each=[500, 505, 510])
    found = verdict(FEWER, study("table1", theirs, row("vsam", spread(70.0), ours[1], samples_each=list(ours))))
    assert found.verdict == expected
    assert found.effect.mean == pytest.approx((505 - ours[1]) / 10)
    assert "points of the steps" in found.paper


def test_the_accuracy_grows_with_alpha_by_so_many_points_a_doubling():
    rows = [row("vsam", paired(i, 0.1 * i), alpha=0.05 * 2**i) for i in range(3)]
    found = verdict(GAINS, study("alpha", *rows))
    assert found.verdict == "supported"
    assert found.effect.mean == pytest.approx(1.0)
    assert found.effect.low == pytest.approx(1 - REACH * 0.1, abs=1e-5)
    assert found.paper == "paper: +0.71 points per doubling of α"


def test_without_sams_gain_there_is_no_margin():
    ablation = study("ablation", row("vsam", paired(0.0, 0.01)), row("vsam-a", spread(70.0)))
    found = verdict(REUSE, ablation)
    assert found.verdict == UNDECIDED
    assert "was not measured" in found.reason
    assert found.paper == "paper: +0.04 to +0.16 points, 2 pairs"


def test_like_cost_takes_the_nearest_run_by_cost_and_not_by_accuracy():
    table = gain_of_four(row("sam-5", spread(70.0), samples=200), row("vsam", paired(9.0, 0.1), samples=400))
    near = row("vsam", paired(2.0, 0.1), samples=210, alpha=0.1)
    better = row("vsam", paired(9.0, 0.1), samples=250, alpha=0.2)
    found = verdict(LIKE_COST, table, study("alpha", better, near))
    assert found.verdict == "supported"
    assert found.effect.mean == pytest.approx(2.0)
    assert "vsam sampled 21 % of the steps with α = 0.1, sam-5 sampled 20 % of the steps" in found.reason
    assert found.paper == "paper: +0.95 points"


def test_a_dearer_vsam_is_not_at_like_cost():
    table = gain_of_four(row("sam-5", spread(70.0), samples=200), row("vsam", paired(9.0, 0.1), samples=350))
    found = verdict(LIKE_COST, table)
    assert found.verdict == "not run"
    assert "no vSAM run costs about as much as SAM-5; in the closest, vsam sampled 35 %" in found.reason


def alphas(*shares_by_alpha, **settings):
    """A study of α = 0.1, 0.2, 0.4, …, of which each entry holds the samples of three seeds."""
    rows = [
        row("vsam", spread(70.0), samples=sum(each) / 3, samples_each=list(each), alpha=0.1 * 2**i)
        for i, each in enumerate(shares_by_alpha)
    ]
    return study("alpha", row("sam", spread(70.0), samples=STEPS), *rows, **settings)


def test_samples_grow_with_alpha_by_so_many_points_a_doubling():
    # Slopes of 10, 11 and 12 points a doubling: each seed's shares lie on a line.
    found = verdict(GROWS, alphas((100, 100, 100), (200, 210, 220), (300, 320, 340)))
    assert found.verdict == "supported"
    assert found.effect.mean == pytest.approx(11.0)
    assert found.effect.low == pytest.approx(11 - REACH, abs=1e-5)
    assert "2 of 2 steps from one α to the next rise" in found.reason


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([(300, 301, 302), (200, 205, 200), (100, 110, 105)], "contradicted"),
        ([(300, 301, 302), (300, 305, 300), (305, 300, 303)], "not supported"),
        ([(100, 100, 100), (500, 100, 90), (900, 100, 80)], UNDECIDED),
        ([(100, 101, 102), (200, 201, 202)], "not run"),
        ([(100, 101, 102), (500, 503, 502), (450, 451, 455), (420, 421, 422)], "not supported"),
        ([(100, 100, 100), (200, 200, 200), (300, 300, 300)], UNDECIDED),
    ],
)
def test_samples_that_do_not_grow_with_alpha(shares, expected):
    assert verdict(GROWS, alphas(*shares)).verdict == expected


def norms(*factors, method="sam", **settings):
    """Make runs of eight windows. The last quarter's mean is `factor` times the first quarter's."""
    lists = [[0.9, 1.1, 5.0, None, 5.0, 5.0, 5.0, 0.9 * factor, 1.1 * factor] for factor in factors]
    accuracies = [70.0 + i for i in range(len(factors))]
    return study("norms", row(method, accuracies, psf_norms=lists), **settings)


def test_the_growth_of_the_psf_is_a_geometric_mean():
    found = verdict(PSF, norms(2.0 / 1.1, 2.0, 2.0 * 1.1))
    reach = REACH * math.log(1.1)
    assert found.verdict == "supported"
    assert found.effect.mean == pytest.approx(100.0)
    assert found.effect.low == pytest.approx(100 * (2 * math.exp(-reach) - 1), abs=1e-3)
    assert found.effect.high == pytest.approx(100 * (2 * math.exp(reach) - 1), abs=1e-3)
    assert "in runs of sam, last quarter against first; first window 0.9, lowest 0.9, last 2.2" in found.reason


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ([0.5, 0.51, 0.52], "contradicted"),
        ([1.0, 1.01, 0.99], "not supported"),
        ([0.5, 1.0, 2.0], UNDECIDED),
        ([2.0, 2.1], UNDECIDED),
    ],
)
def test_a_psf_that_does_not_grow(factors, expected):
    assert verdict(PSF, norms(*factors)).verdict == expected


def test_sams_norms_are_judged_before_vsams():
    both = study(
        "norms",
        *norms(0.5, 0.51, 0.52, method="vsam")["norms"]["rows"],
        *norms(2.0, 2.1, 2.2)["norms"]["rows"],
    )
    assert verdict(PSF, both).verdict == "supported"
    assert verdict(PSF, norms(0.5, 0.51, 0.52, method="vsam")).verdict == "contradicted"
    assert verdict(PSF, norms(2.0, 2.1, 2.2, method="sgd")).verdict == "not run"


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(paired(4.0, 0.1), "supported"), (paired(6.0, 0.1), "supported"), (paired(1.0, 0.1), "contradicted")],
)
def test_quantized_vsam_is_held_against_sam(ours, expected):
    found = verdict(LSQ, study("lsq", row("sgd", spread(70.0)), row("sam", paired(4.0, 0.2)), row("vsam", ours)))
    assert found.verdict == expected
    assert found.paper == "paper: -0.45 to -0.03 points, 2 pairs, setting not stated"


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ((1.60, 1.61, 1.62), "supported"),
        ((1.40, 1.41, 1.42), "contradicted"),
        ((1.40, 1.55, 1.60), UNDECIDED),
        ((None, None, None), "not run"),
    ],
)
def test_quantized_vsam_is_more_than_half_as_fast_again(ratios, expected):
    ours = row("vsam", spread(70.0), speed_to_sam_each=list(ratios))
    found = verdict(LSQ_FASTER, study("lsq", row("sam", spread(70.0)), ours))
    assert found.verdict == expected
    assert found.paper == "paper: +54 to +65 % faster, 2 pairs, setting not stated"
    assert found.effect is None or found.effect.mean == pytest.approx(100 * (sum(ratios) / 3 - 1))


def test_quantized_runs_are_evidence_for_their_own_claim_only():
    lsq = study("lsq", row("sgd", spread(90.0)), row("sam", spread(10.0)), row("vsam", spread(50.0)))
    assert [verdict.verdict for verdict in verdicts(PREMISE, gain_of_four(), lsq)] == ["supported"]
    assert verdict(PREMISE, lsq).verdict == "not run"
    assert verdict(LSQ, gain_of_four(row("vsam", spread(71.0)))).verdict == "not run"


def test_vsam_is_judged_with_every_gamma_that_was_studied():
    own, other = row("vsam", spread(71.0), label="vsam"), row("vsam", paired(4.0, 0.6), label="vsam-gamma-0.9")
    gammas = study("gamma", own | {"gamma": 0.7}, other | {"gamma": 0.9})
    table = gain_of_four(own, row("vsam-a", spread(71.0)))
    for claim, expected in ((EQUAL, ["contradicted", "supported"]), (REUSE, [UNDECIDED, "supported"])):
        found = verdicts(claim, table, gammas)
        assert [verdict.verdict for verdict in found] == expected
        assert [verdict.group.partition("steps")[2] for verdict in found] == ["", ", γ = 0.9, one of 2 tried"]
    assert len(verdicts(PREMISE, table, gammas)) == 1


def test_groups_are_judged_apart_and_named():
    rows = []
    for data, noise, gain in (("cifar10", None, 4.0), ("cifar10", 0.3, -4.0), ("cifar100", None, 0.1)):
        setting = {"data": data, "noise": noise}
        rows += [row("sgd", spread(70.0)) | setting, row("sam", paired(gain, 0.1)) | setting]
    found = verdicts(PREMISE, study("table1", *rows))
    assert [(verdict.group, verdict.verdict) for verdict in found] == [
        ("resnet8 on cifar10, 1,000 steps", "supported"),
        ("resnet8 on cifar10 with 30 % wrong labels, 1,000 steps", "contradicted"),
        ("resnet8 on cifar100, 1,000 steps", "not supported"),
    ]


def test_recipes_that_share_model_and_data_are_told_apart_by_name():
    rows = []
    for recipe, gain in (("clean", 4.0), ("noisy", -4.0)):
        rows += [row("sgd", spread(70.0), recipe=recipe), row("sam", paired(gain, 0.1), recipe=recipe)]
    found = verdicts(PREMISE, study("table1", *rows))
    assert [(verdict.group, verdict.verdict) for verdict in found] == [
        ("clean (resnet8 on cifar10, 1,000 steps)", "supported"),
        ("noisy (resnet8 on cifar10, 1,000 steps)", "contradicted"),
    ]


def test_the_full_precision_runs_are_no_method_of_the_quantized():
    start = row("sgd", spread(90.0), recipe="start", label="sgd-full-precision")
    rows = [row("sgd", spread(70.0)), row("sam", paired(4.0, 0.5)), row("vsam", paired(4.0, 0.2))]
    assert verdict(LSQ, study("lsq", start, *rows)).verdict == "supported"


def test_scales_are_never_mixed():
    reuse = study("ablation", row("vsam-a", spread(70.0)), scale="paper")
    assert verdict(REUSE, gain_of_four(row("vsam", paired(2.0, 0.1))), reuse).verdict == "not run"


def test_tiny_runs_and_too_few_seeds_decide_nothing():
    assert verdict(PREMISE, gain_of_four(scale="tiny")).verdict == UNDECIDED
    two = study("table1", row("sgd", [70.0, 70.1]), row("sam", [80.0, 80.2]))
    assert verdict(PREMISE, two).verdict == UNDECIDED
    same = study("table1", row("sgd", [70.1, 71.2, 72.3]), row("sam", [71.4, 72.5, 73.6]))
    assert verdict(PREMISE, same).verdict == UNDECIDED


def test_of_several_studies_the_one_with_most_seeds_speaks():
    three, four = spread(70.0), [*spread(70.0), 70.0]
    studies = [study("table1", row("sgd", three), row("sam", three)), study("ablation", row("sgd", four))]
    assert verdict(PREMISE, *studies).effect.n == 3
    studies.append(study("norms", row("sam", [accuracy + 1 for accuracy in four])))
    found = verdict(PREMISE, *studies).effect
    assert (found.n, found.mean) == (4, pytest.approx(1.0))


def test_only_shared_seeds_are_paired():
    sam = row("sam", [75.0, 74.0, 90.0, 73.0]) | {"seed_list": [2, 1, 9, 0]}
    effect = verdict(PREMISE, study("table1", row("sgd", [70.0, 70.0, 70.0]), sam)).effect
    assert (effect.mean, effect.n, effect.is_paired) == (pytest.approx(4.0), 3, True)


def test_at_the_papers_scale_the_number_is_that_of_the_pair():
    setting = {"model": "wrn28-10", "data": "cifar100"}
    table = study("table1", *(row(name, spread(80.0)) | setting for name in ("sgd", "sam")), scale="paper")
    assert verdict(PREMISE, table).paper == "paper: +1.56 points"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "damaged"),
        ([{"method": "sam"}], "damaged"),
        (["sam"], "damaged"),
        ([row("sam", spread(70.0)), row("sam", spread(71.0))], "two rows for sam"),
        ([row("sgd", spread(70.0)), row("sam", spread(70.0)) | {"seed_list": [0, 0, 1]}], "each seed"),
        ([row("sgd", spread(70.0)), row("sam", spread(70.0)) | {"seed_list": [0, 1]}], "each seed"),
    ],
)
def test_rows_that_cannot_be_evidence_are_refused(rows, message):
    with pytest.raises(UserError, match=message):
        judge({"table1": {"scale": "small", "rows": rows}})


@pytest.mark.parametrize(
    "key", [*row("sam"), "alpha", "gamma", "noise", "recipe", "label", "psf_norms", "samples_each"]
)
def test_whatever_stands_in_a_row_gives_a_verdict_or_is_refused(key):
    sound = [row(method, spread(70.0)) for method in ("sgd", "sam", "vsam")]
    for value in (
        None,
        "x",
        True,
        -1,
        0,
        1e308,
        math.inf,
        math.nan,
        [],
        ["x"],
        [None],
        [1e308] * 3,
        [[1e-300, 1e30]],
        {},
    ):
        for method, name in itertools.product(("sam", "vsam", "ae-sam"), ("table1", "alpha", "norms", "lsq")):
            spoilt = [found for found in sound if found["method"] != method] + [
                row(method, spread(71.0)) | {key: value}
            ]
            with contextlib.suppress(UserError):
                assert judge(study(name, *spoilt))


def between(low, high, n=5):
    return Interval((low + high) / 2, low, high, n)


@pytest.mark.parametrize(
    ("rule", "low", "high", "expected"),
    [
        (more(1.0), 0.1, 3.0, "supported"),
        (more(1.0), 0.1, 1.0, "supported"),
        (more(1.0), 0.1, 0.9, "not supported"),
        (more(1.0), 0.0, 3.0, UNDECIDED),
        (more(1.0), -0.1, 1.0, UNDECIDED),
        (more(1.0), -5.0, 0.0, "not supported"),
        (more(1.0), -5.0, -0.1, "contradicted"),
        (more(1.0), math.nan, math.nan, UNDECIDED),
        (more(None), -0.01, 0.01, UNDECIDED),
        (more(None, than=50), 49, 51, UNDECIDED),
        (more(None, than=50), 51, 52, "supported"),
        (about(0.0, 1.0), -0.9, 0.9, "supported"),
        (about(0.0, 1.0), -1.0, 0.5, UNDECIDED),
        (about(0.0, 1.0), -1.5, -0.1, "not supported"),
        (about(0.0, 1.0), -2.0, -1.0, "contradicted"),
        (about(0.0, 1.0), 1.0, 2.0, "not supported"),
        (about(0.0, 1.0, or_more=True), 1.0, 2.0, "supported"),
        (about(0.0, 1.0), math.nan, math.nan, UNDECIDED),
        (about(0.0, None), -0.1, 0.1, UNDECIDED),
        (about(0.0, None), -0.2, -0.1, "not supported"),
    ],
)
def test_the_whole_interval_decides(rule, low, high, expected):
    assert rule(between(low, high)) == expected


def one_claim(*words):
    """The verdict table's line of a claim with these verdicts."""
    given = judge(gain_of_four())[:1]
    found = [type(given[0])(**{**vars(given[0]), "verdict": word}) for word in words]
    sentence, (_, line) = overview(found)
    assert sentence.endswith(f": 1 {line[0]}.")
    return line[0], tuple(map(int, line[3:]))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["not run"], ("not run", (0, 0, 0))),
        (["supported", "supported", "contradicted"], ("supported", (2, 1, 0))),
        (["contradicted", "contradicted", "supported"], ("contradicted", (1, 2, 0))),
        (["not supported", UNDECIDED], ("not supported", (0, 1, 1))),
        (["supported", UNDECIDED, UNDECIDED], ("mixed", (1, 0, 2))),
        ([UNDECIDED, UNDECIDED], (UNDECIDED, (0, 0, 2))),
    ],
)
def test_a_claims_verdict_is_that_of_most_settings(words, expected):
    assert one_claim(*words) == expected


def test_the_table_is_written_and_read(tmp_path):
    assert judged(tmp_path) is None
    (tmp_path / "table1.json").write_text(json.dumps(gain_of_four()["table1"]))
    sentence, lines = judged(tmp_path)
    assert sentence.startswith("20 claims of the paper, judged by our runs: ")
    assert lines[1] == ["supported", PREMISE, "+0.49 to +2.37 points, 6 pairs", "1", "0", "0"]
    verdicts = judge(read_studies(tmp_path))
    page = to_markdown(verdicts)
    assert page.count("resnet8 on cifar10, 1,000 steps, small scale") == len([v for v in verdicts if v.scale])
    assert [claim["claim"] for claim in json.loads(json.dumps(to_dict(verdicts)))["claims"]] == CLAIMS
    (tmp_path / "alpha.json").write_text("{")
    with pytest.raises(UserError, match=r"alpha.json cannot be read"):
        judged(tmp_path)


def test_studies_of_others_are_left_alone():
    assert len(judge({"lemma2": {"scale": "small", "rows": [{"method": "sgd", "horizon": 10}]}})) == len(CLAIMS)
