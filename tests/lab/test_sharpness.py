"""The sharpness of runs on their own training images: numbers, slices that resume, a page."""

import json
import re
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from lab.helpers import CPU, open_run
from lab.made_sharpness import estimate, made_row, made_slices
from vsam.lab.checkpoint import load_checkpoint, save_checkpoint
from vsam.lab.data import Batches
from vsam.lab.errors import UserError
from vsam.lab.learner import evaluate
from vsam.lab.sharpness import checkpoints_in, cut, draw, names_of, open_trained, table

EVIL = "<script>alert(1)</script>"


def opened(path, num_samples=16, batch_size=16):
    return open_trained(path / "checkpoint.pt", num_samples, batch_size, None, "cpu")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    rows = {"sgd": made_row("sgd", top=9.0, converged=False), "sam": made_row("sam")}
    out = tmp_path_factory.mktemp("pictures") / "pics"
    return draw(rows, made_slices(list(rows)), out), out


def test_it_is_measured_on_the_runs_own_training_images(finished):
    row = opened(finished / "sam", num_samples=1000).measure(what="ascent")
    with closing(open_run(finished / "sam", "method=sam")) as run:
        batches = Batches.test(run.dataset)
        batches.images, batches.labels = run.dataset.train_images, run.dataset.train_labels
        run.learner.model.load_state_dict(load_checkpoint(finished / "sam" / "checkpoint.pt")["model"])
        _, expected = evaluate(run.learner.model, batches, CPU)
    assert row.found.num_samples == 96  # all there are
    assert row.found.loss == pytest.approx(expected, rel=1e-5)


def test_the_json_says_which_run_it_is(finished):
    row = json.loads(json.dumps(opened(finished / "vsam").measure(rho=0.1, mode="train", what="ascent").to_dict()))
    assert (row["run"], row["method"], row["seed"], row["step"]) == (str(finished / "vsam"), "vsam", 0, 12)
    assert (row["num_samples"], row["rho"], row["mode"]) == (16, 0.1, "train")


def test_what_cannot_be_measured_is_explained(run):
    with pytest.raises(UserError, match="--samples"):
        opened(run, num_samples=0)
    with pytest.raises(UserError, match="rho"):
        opened(run).measure(rho=-1)
    content = load_checkpoint(run / "checkpoint.pt")
    weights = {name: value * float("nan") for name, value in content["model"].items()}
    save_checkpoint(run / "checkpoint.pt", content | {"model": weights})
    with pytest.raises(UserError, match="nan"):
        opened(run).measure(what="ascent")
    save_checkpoint(run / "checkpoint.pt", content | {"model": {}})
    with pytest.raises(UserError, match="do not match"):
        opened(run)
    content["recipe"]["quantize"] = {"checkpoint": "none"}
    save_checkpoint(run / "checkpoint.pt", content)
    with pytest.raises(UserError, match="quantized"):
        opened(run)


@pytest.mark.parametrize("change", [{"model": "mine"}, {"data": {"name": "mine"}}])
def test_a_run_of_user_defined_parts_names_the_option_that_it_needs(run, change):
    content = load_checkpoint(run / "checkpoint.pt")
    content["recipe"] |= change
    content["recipe"]["use"] = {"/elsewhere/mine.py": "sha256:0"}
    save_checkpoint(run / "checkpoint.pt", content)
    with pytest.raises(UserError, match="--use /elsewhere/mine"):
        opened(run)


def test_a_slice_resumes_from_its_points(finished, tmp_path):
    options = {"num_points": 3, "span": 0.5, "mode": "eval", "is_between": True}
    said = []

    def fail_late(text):
        said.append(text)
        if len(said) > 12:
            raise KeyboardInterrupt

    runs = {name: opened(finished / name) for name in ("sgd", "sam")}
    with pytest.raises(KeyboardInterrupt):
        cut(runs, tmp_path, say=fail_late, **options)
    stored = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert stored
    whole = cut(runs, tmp_path, say=lambda text: None, **options)
    for name, points in stored.items():
        assert points.items() <= json.loads((tmp_path / name).read_text()).items()
    again = cut(runs, tmp_path / "new", say=lambda text: None, **options)
    assert whole.to_dict() == again.to_dict()
    assert set(whole.between) == {"sam"}
    assert whole.planes["sgd"].losses.shape == (3, 3)


def test_damaged_points_are_evaluated_again(finished, tmp_path):
    options = {"num_points": 3, "span": 0.5, "mode": "eval", "is_between": False, "say": lambda text: None}
    runs = {"sam": opened(finished / "sam")}
    first = cut(runs, tmp_path, **options)
    for path in tmp_path.iterdir():
        path.write_text("{")
    assert cut(runs, tmp_path, **options).to_dict() == first.to_dict()


@pytest.mark.parametrize(("change", "word"), [({"num_points": 4}, "odd"), ({"span": 0.0}, "--span"), ({}, "two runs")])
def test_slices_that_make_no_sense_are_refused(finished, tmp_path, change, word):
    options = {"num_points": 3, "span": 0.5, "mode": "eval", "is_between": True, **change}
    with pytest.raises(UserError, match=word):
        cut({"sam": opened(finished / "sam")}, tmp_path, say=lambda text: None, **options)


def test_everything_is_written(written):
    files, out = written
    names = {path.stem for path in out.glob("*.svg")}
    assert {"sharpness-top-eigenvalues", "sharpness-density", "landscape-lines", "landscape-between"} <= names
    assert {"landscape-contours-0", "landscape-contours-1"} <= names
    assert names == {path.stem for path in out.glob("*.png")}
    assert set(files) == set(out.iterdir())
    assert files[0].name == "sharpness.html"


def test_the_page_has_the_numbers_and_asks_nothing_of_the_network(written):
    page = written[0][0].read_text()
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert "9 ± 0.5*" in page
    assert "3 ± 0.5<" in page


def test_the_numbers_are_json_also_where_they_are_not_finite(tmp_path):
    row = made_row("sam", worst=estimate(1.0, converged=False, error=float("inf")))
    slices = made_slices(["sam"])
    slices.planes["sam"].losses[0, 0] = float("nan")
    slices.lines["sam"].losses[0] = float("inf")
    draw({"sam": row}, slices, tmp_path)
    content = json.loads((tmp_path / "sharpness.json").read_text())
    assert content["runs"]["sam"]["worst"]["error"] is None
    assert content["landscape"]["planes"]["sam"]["losses"][0][0] is None
    assert content["landscape"]["lines"]["sam"]["axis"] == pytest.approx(torch.linspace(-1, 1, 7).tolist(), abs=1e-6)


def test_what_was_not_measured_is_not_drawn_and_names_are_text(tmp_path):
    row = replace(made_row(), found=replace(made_row().found, worst=None, density=None))
    names = {path.name for path in draw({EVIL: row}, None, tmp_path)}
    assert "sharpness-worst.svg" not in names
    assert "sharpness-density.svg" not in names
    page = (tmp_path / "sharpness.html").read_text()
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_table_marks_what_has_not_converged():
    (headings, line), note = table({"sam": made_row(converged=False)})
    assert headings[:3] == ["run", "loss", "top eigenvalue"]
    assert line[2] == "3 ± 0.5*"
    assert "64 training images" in note


def test_names_tell_runs_apart(finished, run):
    first, second = opened(finished / "sam"), opened(finished / "vsam")
    assert names_of([first, second]) == ["sam", "vsam"]
    copy = opened(run)
    assert names_of([second, copy]) == [str(finished / "vsam"), str(run)]


def test_checkpoints_are_found_below_a_folder(finished, tmp_path):
    assert [path.parent.name for path in checkpoints_in(finished)] == ["sam", "sgd", "vsam"]
    assert checkpoints_in(finished / "sam/checkpoint.pt") == [finished / "sam/checkpoint.pt"]
    with pytest.raises(UserError, match=r"checkpoint\.pt"):
        checkpoints_in(tmp_path)
