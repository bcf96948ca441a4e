"""Running studies: finished runs are kept, failures come at the end, and the record says what the folders say."""

import json
import shutil
import statistics

import pytest

from lab.helpers import CPU, quick_recipe
from vsam.lab.errors import UserError
from vsam.lab.rows import by_label, summarise
from vsam.lab.run import read_run, run_path
from vsam.lab.study.run import _norms, chosen_parts, figures, page, run_study, tables

SMALL = ("data.train=32", "epochs=1")
SEGMENTS = 64


def part(name, *changes):
    return {name: [quick_recipe(*SMALL, *change).updated(name=name) for change in changes]}


def run(parts, out, study="alpha", only=(), methods=()):
    return run_study(study, "tiny", parts, chosen_parts(parts, only, methods), out, None, CPU)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    varied = ("method=vsam", "vsam.alpha=0.3", "variant=alpha-0.3")
    parts = part("one", ("method=sam",), ("method=sam", "seed=1"), varied) | part("two", ("method=sgd",))
    return parts, out, run(parts, out)


def test_rows_say_what_the_folders_say(studied):
    _, out, content = studied
    assert (content["study"], content["scale"], content["failures"]) == ("alpha", "tiny", [])
    sam, vsam, sgd = content["rows"]
    assert [row["recipe"] for row in content["rows"]] == ["one", "one", "two"]
    assert [(row["method"], row["alpha"]) for row in (sam, vsam, sgd)] == [("sam", None), ("vsam", 0.3), ("sgd", None)]
    summaries = [json.loads((out / f"runs/one/sam/seed-{i}/summary.json").read_text()) for i in (0, 1)]
    assert sam["seed_list"] == [0, 1]
    assert sam["accuracies"] == [summary["accuracy"] for summary in summaries]
    assert sam["samples_each"] == [summary["samples"] for summary in summaries]
    assert sam["accuracy"] == pytest.approx(statistics.fmean(sam["accuracies"]))
    assert sam["noise"] == 0.2
    json.dumps(content, allow_nan=False)


def test_page_and_figures_follow_from_the_record_alone(studied):
    content = json.loads(json.dumps(studied[2]))
    assert [row.label for row in tables(content)["one"]] == ["sam", "vsam alpha=0.3"]
    assert "| vsam alpha=0.3 (n = 1) |" in page(content)
    assert list(figures(content)) == ["alpha-one"]
    runs = [read_run(run_path(studied[1] / "runs", recipe)) for recipe in studied[0]["one"]]
    ours, shown = summarise(by_label(runs)), tables(content)["one"]
    assert [(row.accuracy, row.ideal_ratio) for row in ours] == [(row.accuracy, row.ideal_ratio) for row in shown]


def test_finished_runs_are_kept_and_need_no_data(studied, tmp_path, monkeypatch):
    parts, out, content = studied
    monkeypatch.setattr("vsam.lab.compare.load_data", lambda *_: pytest.fail("data were asked for"))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    assert run(parts, out) == content
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before


def test_other_settings_in_a_later_part_are_found_before_anything_is_trained(studied, tmp_path):
    shutil.copytree(studied[1], tmp_path, dirs_exist_ok=True)
    with pytest.raises(UserError, match=r"two/sgd/seed-0 was started with other settings \(lr "):
        run(part("new", ("method=sgd",)) | part("two", ("method=sgd", "lr=0.2")), tmp_path)
    assert not (tmp_path / "runs/new").exists()


def test_what_fails_or_is_damaged_is_listed_and_stops_nothing(studied, tmp_path):
    shutil.copytree(studied[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / "runs/one/sam/seed-0/config.toml").write_text("epochs = ")
    content = run(studied[0] | part("three", ("method=sgd", "lr=1e30"), ("method=sam",)), tmp_path)
    assert [(row["recipe"], row["label"], row["seeds"]) for row in content["rows"]] == [
        ("one", "sam", 1),
        ("one", "vsam-alpha-0.3", 1),
        ("two", "sgd", 1),
        ("three", "sam", 1),
    ]
    one, three = content["failures"]
    assert one.startswith("one sam, seed 0: ")
    assert three.startswith("three sgd, seed 0: The loss is nan")


def test_only_some_parts_and_methods_are_trained(studied, tmp_path):
    parts = studied[0]
    assert [row["recipe"] for row in run(parts, tmp_path, only=["two"])["rows"]] == ["two"]
    assert [row["label"] for row in run(parts, tmp_path, methods=["vsam"])["rows"]] == ["vsam-alpha-0.3", "sgd"]
    for options, message in (({"only": ["x"]}, "no part 'x'"), ({"methods": ["asam"]}, "no method 'asam'")):
        with pytest.raises(UserError, match=message):
            run(parts, tmp_path, **options)


@pytest.mark.slow
def test_nothing_starts_from_a_run_that_is_not_finished(tmp_path):
    begin = part("begin", ("method=sgd", "lr=1e30"), ("method=sgd", "seed=1"))
    sources = [run_path(tmp_path / "runs", recipe) for recipe in begin["begin"]]
    then = part("then", *((f"quantize.checkpoint={path}/checkpoint.pt", f"seed={i}") for i, path in enumerate(sources)))
    content = run(begin | then, tmp_path, study="lsq")
    assert content["failures"][1] == "then vsam, seed 0: its source is not trained."
    assert [row["seed_list"] for row in content["rows"]] == [[1], [1]]


def sampled(folder, steps, lines):
    """A run's folder, with these sampled steps."""
    shutil.copytree(folder, folder.parent / f"norms-{steps}", dirs_exist_ok=True)
    path = folder.parent / f"norms-{steps}"
    (path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = json.loads((path / "summary.json").read_text()) | {"steps": steps, "samples": len(lines)}
    (path / "summary.json").write_text(json.dumps(summary))
    return read_run(path)


@pytest.fixture
def folder(studied, tmp_path):
    return shutil.copytree(studied[1] / "runs/one/sam/seed-0", tmp_path / "run")


def line(step, psf=2.0):
    return {"step": step, "grad_norm": 1.0, "psf_norm": psf, "change_var": None, "change_norm": None}


def test_norms_are_averaged_over_segments(folder):
    found = _norms(sampled(folder, 4 * SEGMENTS, [line(step, float(step)) for step in range(1, 4 * SEGMENTS + 1)]))
    assert found["psf_norms"] == [2.5 + 4 * i for i in range(SEGMENTS)]
    assert found["rates"] == [1.0] * SEGMENTS
    assert found["changes_var"] == [None] * SEGMENTS


def test_a_segment_without_a_sample_is_a_gap(folder):
    found = _norms(sampled(folder, 2 * SEGMENTS, [line(2 * SEGMENTS)]))
    assert found["psf_norms"] == [None] * (SEGMENTS - 1) + [2.0]
    assert found["rates"] == [0.0] * (SEGMENTS - 1) + [0.5]


@pytest.mark.parametrize("steps", [5, SEGMENTS + 1, 1000])
def test_rates_add_up_to_the_samples_whatever_the_length(folder, steps):
    found = _norms(sampled(folder, steps, [line(step) for step in range(1, steps + 1)]))
    assert found["rates"] == pytest.approx([1.0] * min(steps, SEGMENTS))


def test_damaged_steps_are_refused_and_never_taken_for_few_samples(folder):
    damaged = sampled(folder, 8, [line(1), line(2)])
    (damaged.path / "steps.jsonl").write_text(json.dumps(line(1)) + "\n")
    with pytest.raises(UserError, match=r"steps.jsonl is damaged"):
        _norms(read_run(damaged.path))
