"""The study of flatness as the command runs it: measured once, written whole, and measured anew for other weights."""

import json
import shutil

import pytest

from lab.helpers import CPU
from vsam.lab.runs.checkpoint import load_checkpoint, save_checkpoint
from vsam.lab.study.flatness import minima
from vsam.lab.study.flatness.minima import MEASURES, measure_minimum, read_minimum
from vsam.lab.study.flatness.outcome import findings, tables
from vsam.lab.study.plan import STUDIES
from vsam.lab.study.run import run_study
from vsam.lab.study.write import write_study


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    out = tmp_path_factory.mktemp("flatness")
    return run_study(STUDIES["flatness"], "tiny", 1, out, None, CPU), out


def test_every_run_has_every_measure_with_its_error(outcome):
    rows = outcome[0].to_dict()["rows"]
    assert [row["label"] for row in rows] == ["sgd", "sam", "vsam", "vsam-budget"]
    for row in rows:
        (found,) = row["minima"]
        assert found["measures"].keys() >= MEASURES.keys()
        assert all(isinstance(one["converged"], bool) for one in found["measures"].values())
        assert (found["settings"]["rho"], found["settings"]["samples"]) == (0.2, 32)
    assert [row["psf"] is not None for row in rows] == [False, False, True, False]


def test_it_is_written_with_tables_findings_and_figures(outcome, tmp_path):
    found, _ = outcome
    assert found.failures == []
    write_study(found, tmp_path, "vsam study flatness")
    content = json.loads((tmp_path / "flatness.json").read_text())
    assert content["findings"].keys() == {"ratios_to_sgd", "correlations"}
    text = (tmp_path / "flatness.md").read_text()
    for heading in ("fashion-mini-tiny: measures", "against SGD", "Rank correlation", "old PSF", "PSF against"):
        assert heading in text
    drawn = {path.name for path in (tmp_path / "figures").glob("*.svg")}
    assert drawn == {"flatness-minima.svg", "flatness-accuracy.svg", "flatness-psf.svg"}


def test_nothing_is_measured_twice(outcome, monkeypatch):
    monkeypatch.setattr(minima, "open_trained", None)
    again = run_study(STUDIES["flatness"], "tiny", 1, outcome[1], None, CPU)
    assert again.failures == []
    assert again.to_dict()["rows"] == outcome[0].to_dict()["rows"]


def test_other_weights_are_measured_anew(outcome, tmp_path):
    run = next(path.parent for path in outcome[1].rglob("sgd/seed-0/checkpoint.pt"))
    copy = shutil.copytree(run, tmp_path / "run")
    recipe = outcome[0].parts[0].runs[0].recipe
    before = read_minimum(copy)
    content = load_checkpoint(copy / "checkpoint.pt")
    content["model"] = {name: 1.01 * value for name, value in content["model"].items()}
    save_checkpoint(copy / "checkpoint.pt", content)
    after = measure_minimum(copy, recipe, "tiny", None, "cpu")
    assert after["loss"] != before["loss"]
    assert read_minimum(copy) == after
    (copy / "flatness.json").write_text('{"measures": {}}')
    assert read_minimum(copy) is None


def test_a_run_that_cannot_be_measured_is_a_failure_and_the_others_are_measured(outcome, tmp_path):
    out = shutil.copytree(outcome[1], tmp_path / "study")
    run = next(path.parent for path in out.rglob("sam/seed-0/checkpoint.pt"))
    (run / "checkpoint.pt").write_bytes(b"")
    (run / "flatness.json").unlink()
    found = run_study(STUDIES["flatness"], "tiny", 1, out, None, CPU)
    (failure,) = found.failures
    assert "checkpoint.pt is damaged" in failure
    assert [row["minima"] != [None] for row in found.to_dict()["rows"]] == [True, False, True, True]
    assert tables(found.to_dict()["rows"])
    assert "sam" not in findings(found.to_dict()["rows"])["ratios_to_sgd"]["fashion-mini-tiny"]["trace"]
