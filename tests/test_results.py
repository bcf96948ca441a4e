"""The pages repeat the results' numbers."""

import json
import runpy
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from torch.optim import SGD

import vsam
from benchmarks.step_cost import WORKLOADS, Base, Ours
from vsam.lab.report.figures import save
from vsam.lab.study.claims import judge, read_studies, to_markdown

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks/results/small"
FIGURES = REPOSITORY / "docs/figures"


NAMES = ("table1", "alpha", "gamma", "ablation", "lsq", "norms", "frontier", "trials", "flatness", "lemma2")


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(REPOSITORY / "scripts/keep_studies.py"))


@pytest.mark.parametrize("page", ["docs/reproduction.md", "research/frontier.md"])
def test_tables_on_pages_are_those_of_the_results(script, page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert script["BLOCK"].search(text)
    assert script["filled"](text) == text


@pytest.fixture
def keep(tmp_path, monkeypatch):
    """The script on a copy of the repository's results, and the folder that it takes."""
    script = runpy.run_path(str(REPOSITORY / "scripts/keep_studies.py"))
    results, figures, folder = (tmp_path / name for name in ("results", "figures", "studies"))
    shutil.copytree(RESULTS, results)
    folder.mkdir()
    script["main"].__globals__.update(RESULTS=results, FIGURES=figures, PAGES=())

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["keep_studies.py", str(folder), *arguments])
        script["main"]()

    return run, results, folder


def test_a_study_of_which_a_part_was_run_again_keeps_its_other_rows(keep):
    run, results, folder = keep
    before = json.loads((results / "frontier.json").read_text("utf-8"))
    new = before["rows"][0] | {"label": "sam-9", "method": "sam"}
    again = before["rows"][1] | {"accuracy": 1.0}
    content = before | {"rows": [again, new], "training_seconds": 5.0}
    (folder / "frontier.json").write_text(json.dumps(content), encoding="utf-8")
    run("--add")
    after = json.loads((results / "frontier.json").read_text("utf-8"))
    assert {(row["recipe"], row["label"]): row for row in after["rows"]} == {
        **{(row["recipe"], row["label"]): row for row in before["rows"]},
        (again["recipe"], again["label"]): again,
        (new["recipe"], "sam-9"): new,
    }
    assert after["training_seconds"] == before["training_seconds"] + 5
    assert after["environments"] == before["environments"]
    page = (results / "frontier.md").read_text("utf-8")
    assert "## Primary comparison" in page
    assert all(f"| {row['label']} " in page for row in after["rows"])
    run()
    assert len(json.loads((results / "frontier.json").read_text("utf-8"))["rows"]) == 2


def words(svg):
    root = ElementTree.fromstring(svg)
    return ["".join(element.itertext()).strip() for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("name", NAMES)
def test_pages_and_figures_are_drawn_from_the_numbers(script, name, tmp_path):
    content = read_studies(RESULTS, [name])[name]
    assert script["page"](content) == (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    figures = script["figures"](content)
    for file, figure in figures.items():
        svg, _ = save(figure, tmp_path / file)
        assert words(svg.read_text(encoding="utf-8")) == words((FIGURES / f"{file}.svg").read_text(encoding="utf-8"))
    assert {path.stem for path in FIGURES.glob(f"{name}-*.svg")} == set(figures)


def test_the_results_of_all_studies_are_kept(script):
    assert {path.stem for path in RESULTS.glob("*.json")} == set(NAMES) == set(script["NAMES"])


def test_verdicts_follow_from_the_numbers():
    assert (RESULTS / "claims.md").read_text(encoding="utf-8") == to_markdown(judge(read_studies(RESULTS)))


@pytest.mark.parametrize(
    ("what", "file", "pages"), [("short", "short-runs", ["docs/choosing.md"]), ("adamw", "adamw", [])]
)
def test_tables_of_small_runs_follow_from_their_files(what, file, pages):
    script = runpy.run_path(str(REPOSITORY / "benchmarks/small_runs.py"))
    content = json.loads((REPOSITORY / f"benchmarks/results/{file}.json").read_text(encoding="utf-8"))
    table, plan = script[f"{what}_table"](content["runs"]), script[what.upper()]
    assert len(content["runs"]) == len(plan) * len(script["SEEDS"])
    for page in (f"benchmarks/results/{file}.md", *pages):
        assert table in (REPOSITORY / page).read_text(encoding="utf-8"), page


def test_the_figure_of_costs_is_drawn_from_its_numbers():
    script = runpy.run_path(str(REPOSITORY / "benchmarks/cost_figure.py"))
    content = json.loads(script["NUMBERS"].read_text(encoding="utf-8"))
    assert script["draw"](content) == script["FIGURE"].read_text(encoding="utf-8")


def test_small_runs_can_be_measured():
    script = runpy.run_path(str(REPOSITORY / "benchmarks/small_runs.py"))
    rule = {"alpha": 0.2, "window": 10, "start": 2, "initial_samples": 3, "max_rate": 0.4}
    found = script["short"]({"steps": 24, "rule": rule}, seed=0)
    assert 2 / 24 <= found["fraction"] < 0.6
    assert len(found["fraction_by_quarter"]) == 4


def test_the_speed_of_batches_can_be_measured():
    script = runpy.run_path(str(REPOSITORY / "benchmarks/batches.py"))
    assert script["images_per_second"]((1, 8, 8), count=200, channels_last=True) > 0


def test_the_bare_kernels_of_the_floor_are_a_step_of_sam():
    script = runpy.run_path(str(REPOSITORY / "benchmarks/floor.py"))
    base, workload = Base("sgd", SGD, {"lr": 0.05, "momentum": 0.9}), WORKLOADS["mlp"]
    bare = script["Bare"](workload.build(), base)
    ours = Ours(workload.build(), base, vsam.SAM, rho=script["RHO"])
    before = [parameter.clone() for parameter in bare.parameters]
    for _ in range(3):
        bare.step()
        ours.step()
    for own, theirs, start in zip(bare.parameters, ours.problem.model.parameters(), before, strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-7)
        assert not torch.equal(own, start)


def test_the_floor_of_a_step_can_be_measured():
    script = runpy.run_path(str(REPOSITORY / "benchmarks/floor.py"))
    found = script["measure"]("mlp", seconds=0.0)
    assert list(found) == ["bare kernels", "sam", "peer-sam-foreach"]
    assert all(len(quartiles) == 3 for quartiles in found.values())
