"""Hostile names, numbers and files on the command line: one sentence, no traceback, no wait and no harm."""

import csv
import io
import json
import os
import re
import shutil
import signal
import time

import pytest
from PIL import Image

from lab.command import QUICK, Command, assert_refused, vsam
from lab.helpers import assert_same_run
from lab.permissions import obeyed_permissions
from lab.report.made import make_run

DEEP = ".".join("a" * 3000)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("train", "--set", "lr=1e39"), "lr: Input should be at most 1e+30, got 1e+39."),
        (("train", "--set", "saf.temperature=1e200"), "saf.temperature: Input should be at most 1e+30"),
        (("train", "--set", f"{DEEP}=1"), "tables do not nest that deep"),
        (("train", "--set", f"epochs={'[' * 500}{']' * 500}"), "epochs"),
        (("compare", "--seeds", "1000000000"), "--seeds must be at most 1,000, got 1000000000."),
        (("study", "table1", "--scale", "tiny", "--seeds", "1000000000"), "--seeds must be at most 1,000"),
        (("tune", "--tiny", "--seeds", "1000000000"), "--seeds must be at most 1,000"),
        (("compare", "--set", f"seed={2**63 - 1}", "--methods", "sgd"), "Seeds go up to"),
        (("compare", "--methods", f"sam-{'9' * 5000}"), "There is no method 'sam-9"),
        (("explain", f"sam-{'9' * 5000}"), "There is no method 'sam-9"),
        (("train", "pipe.toml"), "pipe.toml cannot be read: it is a device or a pipe"),
        (("methods", "--use", "pipe.toml"), "pipe.toml cannot be read: it is a device or a pipe"),
        (("train", "deep.toml"), "deep.toml is nested too deeply"),
        (("compare", "--csv", "pipe.toml"), "pipe.toml cannot be written: it is a device or a pipe"),
        (("compare", "--latex", "/dev/null"), "/dev/null cannot be written"),
    ],
    ids=lambda value: value[:3] if isinstance(value, tuple) else "",
)
def test_what_cannot_work_is_one_sentence_and_no_wait(call, tmp_path, arguments, part):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "deep.toml").write_text(f"[{DEEP}]\n")
    code, _, err = call(*arguments)
    assert code == 2
    assert part in err
    assert len(err) < 1000
    assert sorted(os.listdir(tmp_path)) == ["deep.toml", "pipe.toml"]


@pytest.fixture
def compared(finished, tmp_path):
    """The arguments of a comparison of finished runs, and its folder."""
    for method in ("sgd", "sam", "vsam"):
        shutil.copytree(finished / method, tmp_path / f"runs/fashion-mini-tiny/{method}/seed-0")
    return ("compare", *QUICK, "--seeds", "1", "--out", "runs")


def test_tables_go_through_links_and_to_the_standard_output_by_its_name(call, compared, tmp_path):
    (tmp_path / "table.csv").symlink_to("there.csv")
    code, out, err = call(*compared, "--csv", "table.csv", "--json", "/dev/stdout")
    assert code == 0, err
    assert (tmp_path / "table.csv").is_symlink()
    table = list(csv.DictReader(io.StringIO((tmp_path / "there.csv").read_text())))
    assert [row["method"] for row in table] == [row["method"] for row in json.loads(out)] == ["sgd", "sam", "vsam"]


def test_finished_runs_are_shown_where_nothing_can_be_written(call, compared, tmp_path):
    folders = [path for path in (tmp_path / "runs").rglob("*") if path.is_dir()]
    for folder in [tmp_path / "runs", *folders]:
        folder.chmod(0o555)
    try:
        with obeyed_permissions():
            train = call("train", *QUICK, "--out", "runs/fashion-mini-tiny/vsam/seed-0")
            compare = call(*compared)
    finally:
        for folder in [tmp_path / "runs", *folders]:
            folder.chmod(0o755)
    assert train[0] == 0, train[2]
    assert "is finished: vsam reached" in train[1]
    assert compare[0] == 0, compare[2]
    assert re.search(r"^ *vsam +\d", compare[1], re.M), compare[1]
    assert "comparison.json could not be written: Permission denied" in compare[2]


def test_metrics_that_cannot_be_read_are_named_and_come_from_the_checkpoint(call, compared, tmp_path):
    run = tmp_path / "runs/fashion-mini-tiny/vsam/seed-0"
    (run / "metrics.jsonl").chmod(0)
    with obeyed_permissions():
        code, _, err = call("report", "runs", "-o", "report.html", "--no-figures")
        assert code == 0, err
        assert "metrics.jsonl cannot be read: Permission denied" in err
        (run / "summary.json").unlink()
        code, _, err = call("train", *QUICK, "--out", str(run))
    assert code == 0, err
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2, "they come from the checkpoint"


def test_one_hostile_run_does_not_stop_a_report_and_nothing_of_it_reaches_the_terminal(call, tmp_path):
    make_run(tmp_path / "runs/good", "sam")
    for name in ("deep-summary", "deep-metrics", "deep-config", "types", "names"):
        make_run(tmp_path / f"runs/{name}\x1b[31m", "sam")
    summary = tmp_path / "runs/deep-summary\x1b[31m/summary.json"
    summary.write_text(f'{{"accuracy": {"[" * 900}{"]" * 900}}}')
    (tmp_path / "runs/deep-metrics\x1b[31m/metrics.jsonl").write_text(f'{{"step": {"[" * 900}{"]" * 900}}}\n')
    with (tmp_path / "runs/deep-config\x1b[31m/config.toml").open("a") as file:
        file.write(f"[{DEEP}]\n")
    for name, change in (
        ("types", {"parameters": "x", "train_images": [], "available_images": 1, "test_images": None}),
        ("names", {"data": "\x1b[31m[/a]|\n\\write18{x}", "label": "a|b\n=1", "environment": 3, "date": []}),
    ):
        path = tmp_path / f"runs/{name}\x1b[31m/summary.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"split": "test", "role": "run"} | change))
    code, out, err = call("report", "runs", "-o", "report.html")
    assert code == 0, err
    assert "\x1b" not in out + err
    assert "nested too deeply" in err
    for table in (tmp_path / "report-figures").glob("*-table.*"):
        assert "\n\\write18" not in table.read_text()


def test_a_page_goes_to_the_standard_output_alone(call, tmp_path):
    make_run(tmp_path / "runs/good", "sam")
    code, out, err = call("report", "runs", "-o", "/dev/stdout")
    assert code == 0, err
    assert out.lower().startswith("<!doctype html>")
    assert out.rstrip().endswith("</html>")
    assert sorted(os.listdir(tmp_path)) == ["runs"]


def test_a_folder_of_images_with_a_name_of_markup_is_compared(tmp_path):
    for split in ("train", "test"):
        for name in ("a", "b"):
            place = tmp_path / "a]b[red]$x_{$" / split / name
            place.mkdir(parents=True)
            for i in range(4):
                Image.new("L", (8, 8), 30 * i).save(place / f"{i}.png")
    data = ("--set", "data.name=folder:a]b[red]$x_{$", "--set", "data.size=8", "--set", "batch=4", "--set", "epochs=1")
    arguments = ("compare", "--tiny", *data, "--seeds", "1", "--methods", "sgd", "--out", "x[/a]b")
    command = vsam(*arguments, folder=tmp_path)
    assert command.code == 0, command.stderr
    assert "on a]b[red]$x_{$, " in command.stdout


# The third step waits for the signal.
WAITING = """
import time
from pathlib import Path

import vsam.lab
from vsam.lab.learner import Learner

step = Learner.step


def wait(learner, batch, epoch, done):
    if done == 2:
        Path("here").touch()
        while not Path("sent").exists():
            time.sleep(0.01)
    return step(learner, batch, epoch, done)


Learner.step = wait


@vsam.lab.method("nothing")
def nothing(base):
    return base
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_and_ctrl_c_save_the_step_and_the_run_ends_the_same(finished, tmp_path, number):
    arguments = ("train", *QUICK, "--out", "run")
    (tmp_path / "own.py").write_text(WAITING)
    command = Command((*arguments, "--use", "own.py"), tmp_path).start()
    end = time.monotonic() + 300
    while not (tmp_path / "here").exists():
        assert time.monotonic() < end
        assert command.is_running, command.stderr
        time.sleep(0.05)
    assert command.process.pid
    os.kill(command.process.pid, number)
    (tmp_path / "sent").touch()
    assert_refused(command.wait(), 1, "Interrupted", "Rerun the same command")
    command = vsam(*arguments, folder=tmp_path)
    assert command.code == 0, command.stderr
    assert "Resuming at step 3 of 12." in command.stderr
    assert_same_run(tmp_path / "run", finished / "vsam")
