"""Verdicts in short: one per claim, and their tally."""

import io
import json
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from lab.paper.test_verdicts import make
from vsam.lab.paper.summary import claims_in, summarise, to_lines

RESULTS = Path(__file__).parents[3] / "benchmarks/results/small"


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["supported", "supported", "undecided", "not run"], ("supported", 2, 0, 1)),
        (["supported", "undecided", "not run"], ("mixed", 1, 0, 1)),
        (["supported", "contradicted"], ("mixed", 1, 1, 0)),
        (["not supported", "contradicted"], ("not supported", 0, 2, 0)),
        (["contradicted", "contradicted", "not supported"], ("contradicted", 0, 3, 0)),
        (["contradicted", "undecided", "undecided"], ("not supported", 0, 1, 2)),
        (["undecided", "not run"], ("undecided", 0, 0, 1)),
        (["not run"], ("not run", 0, 0, 0)),
    ],
)
def test_a_claim_gets_the_verdict_of_most_of_its_settings(verdicts, expected):
    (one,) = summarise([make(verdict=verdict) for verdict in verdicts]).claims
    assert (one.verdict, one.num_for, one.num_against, one.num_open) == expected


def test_the_tally_counts_claims_and_not_settings():
    verdicts = [make(), make(), make(claim="Another.", verdict="not run"), make(claim="Third.")]
    summary = summarise(verdicts)
    assert summary.tally == "3 claims of the paper, judged by our runs: 2 supported, 1 not run."
    content = json.loads(json.dumps(summary.to_dict()))
    assert content["tally"] == {"supported": 2, "not run": 1}
    assert [len(one["verdicts"]) for one in content["claims"]] == [2, 1, 1]


def test_our_own_results_fit_a_narrow_terminal_with_a_line_per_claim():
    summary = claims_in(RESULTS)
    console = Console(width=80, file=io.StringIO())
    console.print(to_lines(summary))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(not line.startswith(" ") for line in lines) == 1 + len(summary.claims)
    assert Counter(one.verdict for one in summary.claims) == summary.counts


def test_a_folder_without_studies_has_no_claims(tmp_path):
    assert claims_in(tmp_path) is None
