"""The rules by which an interval decides, at and around every limit, and how verdicts are shown."""

import io
import json
from dataclasses import asdict

import pytest
from rich.console import Console

from vsam.lab.paper.intervals import Interval
from vsam.lab.paper.verdicts import Verdict, about, decide, more, to_markdown, to_terminal

UNDECIDED = "undecided"


def between(low, high, n=5):
    return Interval((low + high) / 2, low, high, n)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 3.0, "supported"),
        (0.1, 1.0, "supported"),
        (0.1, 0.9, "not supported"),
        (0.0, 3.0, UNDECIDED),
        (-0.1, 3.0, UNDECIDED),
        (-0.1, 0.9, "not supported"),
        (-0.1, 1.0, UNDECIDED),
        (-5.0, 0.0, "not supported"),
        (-5.0, -0.1, "contradicted"),
        (float("nan"), float("nan"), UNDECIDED),
    ],
)
def test_more_is_decided_by_the_whole_interval(low, high, expected):
    assert more(1.0)(between(low, high)) == expected


def test_without_a_margin_more_excludes_nothing():
    assert more(None)(between(-0.01, 0.01)) == UNDECIDED
    assert more(None)(between(0.01, 0.02)) == "supported"
    assert more(None)(between(-0.02, -0.01)) == "contradicted"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.9, 0.9, "supported"),
        (-0.9, -0.5, "supported"),
        (-1.0, 0.5, UNDECIDED),
        (-0.5, 1.0, UNDECIDED),
        (-9.0, 9.0, UNDECIDED),
        (-1.5, -0.1, "not supported"),
        (-2.0, -1.0, "contradicted"),
        (0.1, 1.5, UNDECIDED),
        (1.0, 2.0, "not supported"),
        (float("nan"), float("nan"), UNDECIDED),
    ],
)
def test_about_needs_an_interval_inside_the_margin(low, high, expected):
    assert about(0.0, 1.0)(between(low, high)) == expected
    assert about(40.0, 1.0)(between(40 + low, 40 + high)) == expected


def test_without_a_margin_about_supports_nothing():
    assert about(0.0, None)(between(-0.001, 0.001)) == UNDECIDED
    assert about(0.0, None)(between(-2.0, -1.0)) == "not supported"


def test_more_than_claimed_supports_where_that_is_meant():
    assert about(0.0, 1.0, or_more=True)(between(1.0, 2.0)) == "supported"
    assert about(0.0, 1.0, or_more=True)(between(0.1, 1.5)) == UNDECIDED
    assert about(0.0, 1.0, or_more=True)(between(-2.0, -1.0)) == "contradicted"


@pytest.mark.parametrize(
    ("found", "scale", "why"),
    [
        (None, "small", "too few seeds"),
        (between(1, 2, n=2), "small", "2 seeds"),
        (between(2, 2), "small", "no spread"),
        (between(1, 2), "tiny", "tiny runs"),
    ],
)
def test_too_little_decides_nothing_and_says_why(found, scale, why):
    decision, reason = decide(more(1.0), found, scale)
    assert decision == UNDECIDED
    assert why in reason


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_three_seeds_with_spread_are_enough(scale):
    assert decide(more(1.0), between(1, 2, n=3), scale) == ("supported", "")


def make(**changes):
    numbers = {
        "claim": "A claim.",
        "group": "resnet8 on cifar10",
        "scale": "small",
        "paper": "paper: +1",
        "effect": Interval(1.234, -0.5, 2.968, 3, is_paired=True),
        "unit": "points",
        "verdict": "supported",
        "reason": "why",
    }
    return Verdict(**(numbers | changes))


def printed(verdicts, width=160):
    console = Console(width=width, file=io.StringIO())
    console.print(to_terminal(verdicts))
    return console.file.getvalue()


def test_an_effect_is_shown_with_its_interval_and_its_number_of_seeds():
    assert make().ours == "+1.23 (-0.50 to +2.97) points, n = 3 paired seeds"
    assert make(effect=Interval(1.0, 0.0, 2.0, 4)).ours.endswith("n = 4 seeds")
    assert make(effect=None).ours == "–"


def test_a_small_scale_is_called_small():
    assert make().where.endswith(", small scale")
    assert make(scale="", group="–").where == "–"
    assert "not the paper's setting" in to_markdown([make()])
    assert "small: a small network on few images" in printed([make()], width=200)


def test_markdown_has_a_table_a_claim_that_names_cannot_break():
    text = to_markdown([make(), make(group="a|b <i>\nc", verdict="not run", effect=None), make(claim="Another.")])
    claim, table, other, _, *notes = text.partition("## one by one\n\n")[2].split("\n\n")
    assert (claim, other) == (f"**{make().claim}**", "**Another.**")
    assert len(table.splitlines()) == 4
    assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1
    assert "a\\|b &lt;i&gt; c" in table
    assert len(notes) == 2
    assert "the paper's, never ours" in notes[-1]


def test_the_overview_names_the_runs_that_say_so():
    runs = [
        make(group="small (resnet8 on cifar10), γ = 0.9"),
        make(group="other (resnet8)"),
        make(verdict="contradicted", group="third (vgg)"),
        make(verdict="not run", group="fourth"),
    ]
    overview = to_markdown(runs).partition("## one by one")[0]
    assert "| A claim. | small, γ = 0.9; other |  | third |  |\n" in overview
    assert "fourth" not in overview


def test_the_terminal_takes_nothing_for_markup_and_fits():
    text = printed([make(group="[red]resnet8[/red]")], width=100)
    assert "[red]resnet8[/red]" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_a_verdict_is_plain_data():
    content = json.loads(json.dumps(asdict(make())))
    assert content["effect"] == {"mean": 1.234, "low": -0.5, "high": 2.968, "n": 3, "is_paired": True}
    assert content["verdict"] == "supported"
