"""`vsam study` as a user types it."""

import json
import shlex
import shutil

import pytest

from lab.command import assert_refused, vsam

KEYS = {
    *("data", "model", "method", "seeds", "steps", "accuracy", "accuracy_std", "best", "best_std"),
    *("samples", "ais", "ais_ratio_to_sam", "speed_to_sgd", "ideal_ratio"),
}


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studied")
    command = vsam("study", "gamma", "--scale", "tiny", "--out", "out", folder=folder)
    assert command.code == 0, command.stderr
    return folder, command


def test_a_study_writes_numbers_tables_and_figures(studied):
    folder, command = studied
    content = json.loads((folder / "out/gamma.json").read_text())
    assert (content["study"], content["scale"]) == ("gamma", "tiny")
    assert [row["gamma"] for row in content["rows"]] == [None, 0.6, 0.7, 0.8, 0.9]
    assert all(row.keys() >= KEYS for row in content["rows"])
    for name in ("gamma.json", "gamma.md", "gamma.tex", "figures/gamma-fashion-mini-tiny.svg"):
        assert (folder / "out" / name).stat().st_size > 100
        assert f"out/{name}" in command.stdout
    assert "vsam gamma=0.6" in (folder / "out/gamma.md").read_text()
    assert "Scale: tiny." in (folder / "out/gamma.md").read_text()


def test_a_dry_run_says_what_is_left_and_writes_nothing(studied, tmp_path):
    shutil.copytree(studied[0] / "out", tmp_path / "out")
    shutil.rmtree(tmp_path / "out/runs/fashion-mini-tiny/sam")
    before = sorted(tmp_path.rglob("*"))
    arguments = ("study", "gamma", "--scale", "tiny", "--out", "out", "--dry-run")
    command = vsam(*arguments, folder=tmp_path)
    assert command.code == 0, command.stderr
    line = next(line for line in command.stdout.splitlines() if line.startswith("fashion-mini-tiny"))
    assert line.split()[1:4] == ["5", "4", "1"]
    (row,) = json.loads(vsam(*arguments, "--json", "-", folder=tmp_path).stdout)
    assert (row["runs"], row["finished"], row["missing"]) == (5, 4, 1)
    assert row["hours"] > 0
    assert sorted(tmp_path.rglob("*")) == before


def test_only_the_named_methods_are_trained_and_the_rows_are_those_that_are_there(tmp_path):
    arguments = ("study", "norms", "--scale", "tiny", "--out", "out", "--json", "-")
    for methods, found in (("vsam", ["vsam"]), ("sam", ["sam", "vsam"])):
        command = vsam(*arguments, "--methods", methods, folder=tmp_path)
        assert command.code == 0, command.stderr
        content = json.loads(command.stdout)
        assert [row["method"] for row in content["rows"]] == found
    assert {path.parent.name for path in tmp_path.rglob("seed-0")} == {"sam", "vsam"}
    assert {path.stem for path in tmp_path.glob("out/figures/*.svg")} == {
        "norms-fashion-mini-tiny-sam",
        "norms-fashion-mini-tiny-vsam",
    }


def test_the_papers_claims_are_judged(studied):
    arguments = ("study", "--compare-paper", "--out", "out")
    shown = vsam(*arguments, folder=studied[0])
    assert shown.code == 0, shown.stderr
    assert "20 claims of the paper" in shown.stdout
    assert "SAM is more accurate than SGD." in shown.stdout
    content = json.loads(vsam(*arguments, "--json", "-", folder=studied[0]).stdout)
    assert len(content["claims"]) == 20
    assert "ours, 95 % interval" in (studied[0] / "out/claims.md").read_text()


def test_without_a_name_the_studies_are_listed(tmp_path):
    command = vsam("study", folder=tmp_path)
    assert command.code == 0
    assert all(name in command.stdout for name in ("table1", "alpha", "gamma", "ablation", "lsq", "norms"))
    assert not list(tmp_path.iterdir())


def test_a_second_call_trains_nothing(studied):
    folder, _ = studied
    before = {path: path.stat().st_mtime_ns for path in (folder / "out/runs").rglob("*") if path.is_file()}
    again = vsam("study", "gamma", "--scale", "tiny", "--out", "out", folder=folder)
    assert again.code == 0
    assert "epoch" not in again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_hint_can_be_typed_where_the_folder_has_a_space(studied, tmp_path):
    shutil.copytree(studied[0] / "out", tmp_path / "two p")
    command = vsam("study", "gamma", "--scale", "tiny", "--out", "two p", folder=tmp_path)
    assert command.code == 0, command.stderr
    prefix = "Report on all runs: "
    (hint,) = [line.removeprefix(prefix) for line in command.stdout.splitlines() if line.startswith(prefix)]
    assert shlex.split(hint) == ["vsam", "report", "two p", "-o", "two p/report.html"]


def test_a_damaged_run_is_listed_at_the_end(studied, tmp_path):
    shutil.copytree(studied[0] / "out", tmp_path / "out")
    damaged, missing = (tmp_path / "out/runs/fashion-mini-tiny" / name / "seed-0" for name in ("sam", "vsam-gamma-0.6"))
    (damaged / "config.toml").write_text("epochs = ")
    shutil.rmtree(missing)
    command = vsam("study", "gamma", "--scale", "tiny", "--out", "out", folder=tmp_path)
    assert_refused(command, 1, "These runs are not finished:\n  fashion-mini-tiny sam, seed 0: ", "is not valid TOML")
    assert (missing / "summary.json").exists()
    rows = json.loads((tmp_path / "out/gamma.json").read_text())["rows"]
    assert [row["gamma"] for row in rows] == [0.6, 0.7, 0.8, 0.9]


def test_another_scale_does_not_overwrite(studied):
    command = vsam("study", "gamma", "--scale", "paper", "--out", "out", folder=studied[0])
    assert_refused(command, 2, "has gamma at scale tiny, not paper")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("study", "table1", "--compare-paper"), ("--compare-paper only reads",)),
        (("study", "tabel1"), ("no study 'tabel1'", "table1")),
        (("study", "table1", "--scale", "huge"), ("tiny, small, paper", "'huge'")),
        (("study", "table1", "--seeds", "0"), ("at least 1, got 0",)),
        (("study", "table1", "--scale", "tiny", "--only", "x"), ("no part 'x'", "fashion-mini-tiny")),
        (("study", "--compare-paper", "--out", "nothing"), ("has no study yet",)),
        (("study", "table1", "--out", ""), ("--out must not be empty",)),
    ],
)
def test_bad_input_is_refused(arguments, parts, tmp_path):
    assert_refused(vsam(*arguments, folder=tmp_path), 2, *parts)


def test_a_broken_result_is_named(tmp_path):
    (tmp_path / "table1.json").write_text("{")
    assert_refused(vsam("study", "--compare-paper", "--out", ".", folder=tmp_path), 2, "table1.json", "cannot be read")


def test_foreign_files_are_left_alone_and_a_broken_result_is_written_anew(studied, tmp_path):
    shutil.copytree(studied[0] / "out", tmp_path / "out")
    (tmp_path / "out/notes.json").write_text("my notes")
    (tmp_path / "out/gamma.json").write_text("{")
    command = vsam("study", "gamma", "--scale", "tiny", "--out", "out", folder=tmp_path)
    assert command.code == 0, command.stderr
    assert json.loads((tmp_path / "out/gamma.json").read_text())["study"] == "gamma"
    assert (tmp_path / "out/notes.json").read_text() == "my notes"
