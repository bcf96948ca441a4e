"""What is shown of a search: lines with an estimate, bars that end full, and never the word test."""

import io

from rich.console import Console
from rich.progress import Progress, TextColumn

from lab.tune.test_best import make
from vsam.lab.tune.progress import Bars, Lines
from vsam.lab.tune.results import Result

FAILED = Result(1, "failed", {"rho": 0.1}, None, 0, error="The loss is nan at step 3.")


def drive(watcher, clock=lambda seconds: None):
    watcher.begin(1, 4, 10)
    watcher.start(1, {"rho": 0.1}, 0)
    for step in range(1, 6):
        clock(step)
        watcher.advance(step)
    watcher.epoch(1, 1, 61.5)
    watcher.end(FAILED, 2)
    watcher.start(2, {"rho": 0.2}, 5)
    watcher.advance(10)
    watcher.end(make(2, 62.0, state="pruned"), 3)
    watcher.end(make(3, 64.0), 4)


def test_lines(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    drive(Lines(), lambda step: now.__setitem__(0, 100.0 + 60 * step))
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "trial 1: rho=0.1"
    # Five steps in five minutes, 25 to go; then a failed trial is done with, so 20 of two whole ones.
    assert lines[1] == "trial 1 epoch   1  validation  61.50 %  at most 0:25:00 left"
    assert lines[2] == "trial 1 failed: The loss is nan at step 3.; 2 of 4 done, at most 0:20:00 left"
    assert lines[3] == "trial 2: rho=0.2, resuming at step 5 of 10"
    assert lines[4].startswith("trial 2 pruned with 62.00 % after 3 epochs; 3 of 4 done, at most 0:05:00 left")
    assert lines[5].startswith("trial 3 complete with 64.00 %; 4 of 4 done, at most 0:00:00 left")
    assert "test" not in err


def test_bars():
    columns = (TextColumn("{task.description}"), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(file=io.StringIO())) as progress:
        drive(Bars(progress))
        whole, one = progress.tasks
        assert (whole.completed, whole.total) == (40, 40)
        assert (one.completed, one.total, one.description) == (10, 10, "trial 2")
        assert "64.00 %" in whole.fields["note"]
