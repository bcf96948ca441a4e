"""The paper's claims on the page, as the studies in the folder say."""

import html
import json
import shutil
from pathlib import Path

from lab.report.made import make_run
from vsam.lab.paper.summary import claims_in
from vsam.lab.report import write_report

RESULTS = Path(__file__).resolve().parents[4] / "benchmarks/results/small"


def test_the_page_has_every_verdict_of_the_studies_in_the_folder(tmp_path):
    make_run(tmp_path / "studies/runs/sam", "sam")
    shutil.copy(RESULTS / "table1.json", tmp_path / "studies")
    page = write_report([tmp_path / "studies"], tmp_path / "report.html", figures=False).page.read_text("utf-8")
    summary = claims_in(tmp_path / "studies")
    verdicts = [verdict for claim in summary.claims for verdict in claim.verdicts]
    assert "<h2>The paper’s claims and our runs</h2>" in page
    assert page.count(html.escape(summary.tally)) == 2
    assert page.count('<details class="claim">') == len(summary.claims)
    for word in ("supported", "undecided", "not run"):
        assert page.count(f"<td>{word}</td>") == sum(verdict.verdict == word for verdict in verdicts) > 0
    assert f"<td>{verdicts[0].ours}</td>" in page


def test_folders_without_studies_say_nothing_and_damaged_ones_are_named(tmp_path):
    make_run(tmp_path / "run")
    assert (
        "claims"
        not in write_report([tmp_path], tmp_path / "a.html", figures=False)
        .page.read_text("utf-8")
        .lower()
        .split("<script>")[0]
    )
    (tmp_path / "table1.json").write_text(json.dumps([1]))
    files = write_report([tmp_path], tmp_path / "b.html", figures=False)
    assert len(files.problems) == 1
    assert "table1.json" in files.problems[0]
