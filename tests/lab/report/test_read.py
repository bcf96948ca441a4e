"""A folder is read as far as it is whole, and says what is wrong."""

import json

import pytest

from lab.helpers import lines as lines_of
from lab.report.made import accuracy_at, make_run, write_lines
from vsam.lab.report.read import read_drawn


def change_summary(run, **values):
    path = run / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_line(run, name, number, **values):
    lines = lines_of(run / name)
    lines[number] |= values
    write_lines(run / name, lines)


def test_a_whole_run_has_no_problems(tmp_path):
    run = read_drawn(make_run(tmp_path / "run", "vsam", 3, epochs=4, steps_per_epoch=5))
    assert (run.state, run.problems) == ("finished", ())
    assert (run.label, run.method, run.seed, run.steps) == ("vsam", "vsam", 3, 20)
    assert run.curves["test_accuracy"].mean.tolist() == [accuracy_at("vsam", 3, epoch) for epoch in range(4)]
    assert run.curves["test_accuracy"].middle.tolist() == [1, 2, 3, 4]
    assert run.curves["grad_norm"].middle.tolist() == [1, 4, 7, 10, 13, 16, 19]
    assert run.curves["psf_share"].mean[0] == pytest.approx(1.5 / 2)
    assert run.curves["rate"].middle.tolist() == list(range(1, 21))
    assert run.sampled.share.tolist() == [float(step % 3 == 1) for step in range(1, 21)]
    assert run.finished.summary["accuracy"] == accuracy_at("vsam", 3, 3)


def test_a_variant_is_part_of_the_label(tmp_path):
    run = read_drawn(make_run(tmp_path / "run", "vsam", changes=("variant=alpha-0.2",)))
    assert (run.label, run.method) == ("vsam-alpha-0.2", "vsam")


def test_a_run_without_samples_has_no_step_curves(tmp_path):
    run = read_drawn(make_run(tmp_path / "run", "sgd"))
    assert run.problems == ()
    assert not len(run.sampled.index)
    assert "rate" not in run.curves


def test_an_unfinished_run_says_how_far_it_is(tmp_path):
    path = make_run(tmp_path / "run", "vsam", epochs=4, steps_per_epoch=5, finished=False)
    write_lines(path / "metrics.jsonl", lines_of(path / "metrics.jsonl")[:2])
    write_lines(path / "steps.jsonl", lines_of(path / "steps.jsonl")[:4])
    run = read_drawn(path)
    assert (run.state, run.steps) == ("unfinished", 20)
    assert "2 of 4 epochs" in run.problems[0]
    assert run.curves["rate"].middle.max() == 10


def test_a_run_of_no_epoch_is_unfinished(tmp_path):
    path = make_run(tmp_path / "run", finished=False)
    (path / "metrics.jsonl").unlink()
    (path / "steps.jsonl").unlink()
    run = read_drawn(path)
    assert (run.state, run.steps, run.curves) == ("unfinished", 0, {})
    assert "0 of 3 epochs" in " ".join(run.problems)


BROKEN = {
    "config.toml is missing": lambda run: (run / "config.toml").unlink(),
    "config.toml is not valid TOML": lambda run: (run / "config.toml").write_text("seed = <b>"),
    "config.toml is not valid TOML: 'utf-8'": lambda run: (run / "config.toml").write_bytes(b"\xff\xfe"),
    "config.toml cannot be read: Is a directory": lambda run: (
        (run / "config.toml").unlink(),
        (run / "config.toml").mkdir(),
    ),
    "it lacks name, data, model": lambda run: (run / "config.toml").write_text("a = 1"),
    "needs a method and a seed": lambda run: (run / "config.toml").write_text(
        "method = 5\n" + (run / "config.toml").read_text().replace("method =", "variant =")
    ),
    "summary.json is not valid JSON": lambda run: (run / "summary.json").write_text('{"accuracy": 5'),
    "summary.json must contain an object": lambda run: (run / "summary.json").write_text("[1]"),
    "accuracy must be a finite number, got nan": lambda run: change_summary(run, accuracy=float("nan")),
    "accuracy must be from 0 to 100": lambda run: change_summary(run, accuracy=1e300),
    "samples must be a finite number, got None": lambda run: change_summary(run, samples=None),
    "best must be a finite number, got '5'": lambda run: change_summary(run, best="5"),
    "seconds must be a finite number": lambda run: change_summary(run, seconds=10**400),
    "steps must be from 1": lambda run: change_summary(run, steps=0),
    "ais must be from": lambda run: change_summary(run, ais=1e-300),
    "samples must not be more than steps, got 4,000 of 12": lambda run: change_summary(run, samples=4000),
    "model must be a string": lambda run: change_summary(run, model=["resnet8"]),
    "summary.json has method 'sgd'": lambda run: change_summary(run, method="sgd"),
    "summary.json has epochs 9, but config.toml has 3": lambda run: change_summary(run, epochs=9),
    "summary.json has seed 7": lambda run: change_summary(run, seed=7),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_a_broken_run_says_why(tmp_path, reason):
    path = make_run(tmp_path / "run")
    BROKEN[reason](path)
    run = read_drawn(path)
    assert run.state == "broken"
    assert reason in run.problems[-1]


def test_an_empty_folder_says_so(tmp_path):
    assert read_drawn(tmp_path).problems == ("The folder is empty.",)


FLAWED = {
    "metrics.jsonl is damaged: 1 of 3 lines are unusable, first line 3 (truncated, or not JSON)": lambda run: (
        run / "metrics.jsonl"
    ).write_text((run / "metrics.jsonl").read_text()[:-9]),
    "metrics.jsonl has 2 of 3 epochs": lambda run: write_lines(
        run / "metrics.jsonl", lines_of(run / "metrics.jsonl")[:2]
    ),
    "metrics.jsonl is missing": lambda run: (run / "metrics.jsonl").unlink(),
    "first line 1 (not a line of numbers)": lambda run: (run / "metrics.jsonl").write_text("5\n"),
    "first line 2 (epoch is None)": lambda run: change_line(run, "metrics.jsonl", 1, epoch=None),
    "first line 2 (seconds is 0)": lambda run: change_line(run, "metrics.jsonl", 1, seconds=0),
    "first line 2 (samples is None)": lambda run: change_line(run, "metrics.jsonl", 1, samples=None),
    "metrics.jsonl is damaged: 1 of 3 lines are unusable, first line 2 (step 4 is out of order)": lambda run: (
        change_line(run, "metrics.jsonl", 1, step=4)
    ),
    "steps.jsonl is damaged: 1 of 12 lines are unusable, first line 3 (step 2 is out of order)": lambda run: (
        change_line(run, "steps.jsonl", 2, step=2)
    ),
    "1 of 3 values of test_loss are not finite": lambda run: change_line(
        run, "metrics.jsonl", 1, test_loss=float("nan")
    ),
    "1 of 3 values of train_loss are not finite": lambda run: change_line(run, "metrics.jsonl", 1, train_loss="x"),
    "steps.jsonl is missing": lambda run: (run / "steps.jsonl").unlink(),
    "steps.jsonl has 5 of 12": lambda run: write_lines(run / "steps.jsonl", lines_of(run / "steps.jsonl")[:5]),
    "values of psf_norm are not finite": lambda run: change_line(run, "steps.jsonl", 1, psf_norm=float("inf")),
    "does not fit this version of vsam (future)": lambda run: (run / "config.toml").write_text(
        "future = 1\n" + (run / "config.toml").read_text()
    ),
}


@pytest.mark.parametrize("reason", FLAWED)
def test_a_finished_run_counts_although_something_is_missing(tmp_path, reason):
    path = make_run(tmp_path / "run")
    FLAWED[reason](path)
    run = read_drawn(path)
    assert run.state == "finished"
    assert reason in " ".join(run.problems)


def test_a_turn_that_is_no_text_is_forgotten(tmp_path):
    path = make_run(tmp_path / "run")
    change_line(path, "metrics.jsonl", 1, turn=[1])
    assert [line["turn"] for line in read_drawn(path).epochs] == ["call-0", None, "call-2"]
