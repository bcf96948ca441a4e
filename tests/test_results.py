"""What the pages say of our results is what the results say."""

import runpy
from pathlib import Path

import pytest

from vsam.lab.paper.claims import judge, to_markdown
from vsam.lab.study.write import read_studies

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks/results/small"


@pytest.mark.parametrize("page", ["README.md", "docs/reproduction.md"])
def test_tables_on_pages_are_those_of_the_results(page):
    script = runpy.run_path(str(REPOSITORY / "scripts/keep_studies.py"))
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert script["BLOCK"].search(text)
    assert script["filled"](text) == text


def test_verdicts_follow_from_the_numbers():
    assert (RESULTS / "claims.md").read_text(encoding="utf-8") == to_markdown(judge(read_studies(RESULTS)))
