"""The sharpness of a run while it trains: measured every so many steps, and the run is as without it."""

import json
from contextlib import closing

import pytest

from lab.helpers import assert_same_run, lines, open_run, quick_recipe
from vsam.lab import watch
from vsam.lab.errors import DamagedError, UserError
from vsam.lab.run import read_run
from vsam.lab.sharpness import open_trained

WATCHED = ("sharpness.every=4", "sharpness.samples=32", "sharpness.batch=16")


def train(path, *changes, stop_after=None):
    with closing(open_run(path, *WATCHED, *changes)) as run:
        while not run.is_finished:
            run.train_epoch()
            if stop_after == run.epoch:
                return path
    return path


@pytest.fixture(scope="module")
def sam(tmp_path_factory):
    return train(tmp_path_factory.mktemp("watched") / "sam", "method=sam")


@pytest.mark.parametrize("method", ["sgd", "vsam"])
def test_the_run_is_the_same_as_without_it(finished, tmp_path, method):
    assert_same_run(train(tmp_path / "run", f"method={method}"), finished / method)


def test_a_line_has_the_numbers_of_a_measurement_with_errors(sam):
    found = lines(sam / "sharpness.jsonl")
    assert [line["step"] for line in found] == [4, 8, 12]
    again = (
        open_trained(sam / "checkpoint.pt", 32, 16, None, "cpu")
        .measure(rho=quick_recipe().rho, max_iterations=30)
        .found
    )
    last = found[-1]
    assert last["epoch"] == 1
    assert last["loss"] == pytest.approx(again.loss)
    top = again.top_eigenvalues[0]
    assert (last["top_eigenvalue"], last["top_eigenvalue_converged"]) == (pytest.approx(top.value), top.converged)
    assert last["top_eigenvalue_error"] == pytest.approx(top.error, rel=1e-3)
    assert last["batch_ascent"] == pytest.approx(again.batch_ascent.value)
    assert last["ascent_error"] == pytest.approx(again.ascent.error, rel=1e-3)


def test_a_stopped_run_ends_with_the_same_lines(sam, tmp_path):
    path = train(tmp_path / "run", "method=sam", stop_after=1)
    with (path / "sharpness.jsonl").open("a") as file:
        file.write('{"step": 8, "epoch": 1, "loss": 1.0}\n{"step": 12, "ep')  # of a process that was killed
    train(path, "method=sam")
    assert (path / "sharpness.jsonl").read_bytes() == (sam / "sharpness.jsonl").read_bytes()


def test_lines_that_went_missing_are_noticed(tmp_path):
    path = train(tmp_path / "run", stop_after=1)
    (path / "sharpness.jsonl").write_text("")
    with pytest.raises(DamagedError, match=r"sharpness\.jsonl has only 0 of"):
        train(path)


def test_a_run_without_it_has_no_such_file_nor_setting(finished):
    assert not (finished / "sam" / "sharpness.jsonl").exists()
    assert "sharpness" not in (finished / "sam" / "config.toml").read_text()


def test_what_cannot_be_is_explained():
    for change, said in (("sharpness.every=0", "sharpness.every"), ("sharpness.evry=2", "Did you mean 'every'")):
        with pytest.raises(UserError, match=said):
            quick_recipe(change)
    with pytest.raises(UserError, match="cannot be measured in a quantized run"):
        quick_recipe("sharpness.every=2", "quantize.checkpoint=none")


def test_the_clock_stands_still_meanwhile(tmp_path, monkeypatch):
    now = 0.0

    def clock():
        nonlocal now
        now += 1
        return now

    def slowly(watch, step):
        nonlocal now
        now += 1000
        return {"step": step, "problem": "none"}

    monkeypatch.setattr("vsam.lab.train.observe", slowly)
    monkeypatch.setattr("vsam.lab.train.time.perf_counter", clock)
    path = train(tmp_path / "run", "epochs=1", "sharpness.every=1")
    assert now > 6000
    assert json.loads((path / "summary.json").read_text())["seconds"] < 100


def test_a_measurement_that_fails_stops_no_run_and_is_said(finished, tmp_path, monkeypatch):
    def fail(self, step):
        raise ValueError("The loss at these weights is nan, so sharpness cannot be measured there.")

    monkeypatch.setattr(watch.Watch, "measure", fail)
    path = train(tmp_path / "run")
    assert_same_run(path, finished / "vsam")
    assert all("The loss at these weights is nan" in line["problem"] for line in read_run(path).sharpness)


def test_tensorboard_has_it_too(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from lab.test_tensorboard import scalars
    from vsam.lab.tensorboard import observer

    with closing(open_run(tmp_path / "run", *WATCHED, "epochs=1")) as run:
        observer(True)(run)
        run.train_epoch()
    (point,) = scalars(tmp_path / "run")["step/top_eigenvalue"]
    (line,) = lines(tmp_path / "run" / "sharpness.jsonl")
    assert point == (4, pytest.approx(line["top_eigenvalue"]))
