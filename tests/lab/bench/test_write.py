"""The report on paper."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from lab.bench.made import entry, turns
from vsam.lab.bench.counts import Counts
from vsam.lab.bench.measure import Counted, Plan, Report
from vsam.lab.bench.memory import Memory
from vsam.lab.bench.results import make_rows
from vsam.lab.bench.tables import sections, to_markdown, to_terminal
from vsam.lab.bench.write import to_json, write_folder


@pytest.fixture
def report() -> Report:
    entries = [entry("sgd"), entry("sam"), entry("esam"), entry("vsam", False), entry("peer-sam")]
    taken = [
        turns(0.0, sampled=False),
        turns(0.5),
        turns(0.7),
        turns(1.0, sampled=False),
        turns(1.0),
    ]
    counts = Counts(sampled=True, passes=2, operators=2377, calls=5391, syncs=1)
    return Report(
        Plan(workloads=("mlp",), bases=("sgd",)),
        rows=make_rows("mlp", "sgd", entries, taken),
        counts=[Counted("mlp", "sgd", "sam", "SAM", counts, None)],
        memory=[Memory("sam", -0.001, 1.002, 2**26), Memory("vsam", 1.0, 3.0, 2**26)],
        notes=["A note."],
    )


def test_markdown(report: Report) -> None:
    time, counts, memory = (to_markdown(section).splitlines() for section in sections(report))
    assert time[0] == "## Time: mlp (51 linear layers of width 16, batch 8), base sgd"
    sam = "| SAM, sampled | 9 | 7500.00 (7495.00–7505.00) | 1.88 (1.87–1.88) | 500.00 (495.00–505.00) "
    assert time[5] == f"{sam}| 0.50 ± 0.01 | ≤ 0.50 open |"
    assert time[6].startswith("| ESAM, sampled | 9 | ")
    assert time[6].endswith("| – | – |  |")
    assert time[7].endswith("| ≈ 1.00 ± 0.01 | ≤ 1.10 missed |")
    assert time[8].endswith("| 1 |  |")
    assert counts[4] == "| SAM, sampled | 2 | 2,377 | – | 5,391 | – | 1 |"
    assert memory[4:] == ["| sam | 0.00 | 1.00 | 0 + 1 |", "| vsam | 1.00 | 3.00 | 1 + 2, exceeded |"]


def test_terminal(report: Report) -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    for section in sections(report):
        console.print(to_terminal(section))
    assert "Memory beyond the base alone" in console.export_text()


def test_json(report: Report) -> None:
    record = json.loads(to_json(report, "vsam bench"))
    assert record["command"] == "vsam bench"
    assert {"torch", "device", "commit", "pytorch_optimizer"} <= record["environment"].keys()
    sam = record["rows"][1]
    assert sam["added_ms"]["median"] == pytest.approx(500)
    assert sam["added_to_best_peer"]["value"] == pytest.approx(0.5)
    assert record["counts"][0]["counts"]["operators"] == 2377
    assert record["memory"][1]["is_within_promise"] is False
    assert record["notes"] == ["A note."]


def test_folder(report: Report, tmp_path: Path) -> None:
    paths = write_folder(tmp_path, report, "vsam bench --rounds 9")
    assert [path.name for path in paths] == ["bench.md", "bench.json", "bench.svg", "bench.png"]
    page = (tmp_path / "bench.md").read_text(encoding="utf-8")
    assert "`vsam bench --rounds 9`" in page
    assert "one thread" in page
    assert "- A note." in page
    assert (tmp_path / "bench.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
