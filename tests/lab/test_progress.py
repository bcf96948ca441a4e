"""Bars on a terminal: what runs is in sight, however many runs there are."""

import io
import re
from contextlib import contextmanager

import pytest
from rich.console import Console

from vsam.lab import progress as progress_module
from vsam.lab.progress import Bars, make_bars, make_status

METHODS = [f"cifar10-small-noisy method-{i}" for i in range(12)]
STEPS = 1000


class Screen:
    """Bars on a terminal in memory."""

    def __init__(self, progress, file):
        self._progress, self._file = progress, file
        self.bars = Bars(progress)

    def lines(self):
        """Return the terminal's current content."""
        self._file.seek(0)
        self._file.truncate()
        self._progress.refresh()
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", self._file.getvalue()).splitlines()

    def numbers(self):
        """Of the methods whose runs it shows."""
        return [int(found) for line in self.lines() for found in re.findall(r"method-(\d+)", line)]

    def train(self, method, seed, step):
        """An epoch that ends at a step."""
        self.bars.advance(method, seed, step)
        self.end_epoch(method, seed, step)

    def end_epoch(self, method, seed, step):
        metrics = {"step": step, "test_accuracy": 61.2, "train_loss": 1.2, "rate": 0.5, "skipped": 0}
        self.bars.epoch(method, seed, metrics)


@contextmanager
def begin(methods, seeds, height=24, width=80):
    file = io.StringIO()
    progress = make_bars(Console(file=file, force_terminal=True, width=width, height=height))
    progress.live.auto_refresh = False
    with progress:
        screen = Screen(progress, file)
        screen.bars.begin([(method, seed, 0, STEPS) for seed in range(seeds) for method in methods])
        yield screen


def test_of_108_runs_those_are_shown_that_have_begun_and_go_on():
    with begin(METHODS, seeds=9) as screen:
        assert screen.numbers() == []
        for method in METHODS[:3]:
            screen.train(method, 0, 500)
        assert screen.numbers() == [0, 1, 2]
        screen.bars.advance(METHODS[0], 0, STEPS)
        assert screen.numbers() == [0, 1, 2]  # it is being evaluated
        screen.end_epoch(METHODS[0], 0, STEPS)
        assert screen.numbers() == [1, 2]


def test_runs_of_a_former_seed_that_failed_are_hidden():
    with begin(METHODS, seeds=9) as screen:
        screen.bars.advance(METHODS[3], 0, 500)
        screen.bars.advance(METHODS[0], 1, 1)
        assert screen.numbers() == [0]
        screen.bars.advance(METHODS[3], 0, 600)  # it goes on in a task of its own
        assert sorted(screen.numbers()) == [0, 3]


@pytest.mark.parametrize("height", [6, 24])
def test_no_more_runs_than_fit_are_shown_and_the_last_to_move_are_among_them(height):
    methods = [f"method-{i}" for i in range(30)]
    with begin(methods, seeds=1, height=height) as screen:
        for method in [*methods, *methods[:3]]:
            screen.bars.advance(method, 0, 500)
        lines = screen.lines()
        assert len(lines) == height
        assert "all runs" in lines[0]
        assert screen.numbers() == [0, 1, 2, *range(30 - (height - 4), 30)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_each_bar_takes_one_line_and_has_its_estimate(width):
    with begin(METHODS, seeds=9, width=width) as screen:
        for method in METHODS:
            screen.train(method, 0, 500)
        lines = screen.lines()
    assert len(lines) == 13
    for line in lines:
        assert re.search(r" [━╸╺]{9,} +\d+[%/]\S* +(-:--:--|\d:\d\d:\d\d) ", line), "neither bar, count nor time is cut"
    for line in lines[1:]:
        assert re.search(r"seed 0 +━", line)
        assert "  61.20 %" in line
        assert ("loss" in line) == (width >= 100)


@pytest.mark.parametrize("name", ["x[/a]b", "a-very-long-recipe-name " * 4 + "vsam-gamma-0.6"])
def test_a_name_is_shown_literally_and_keeps_its_end(name):
    with begin([name], seeds=1, width=60) as screen:
        screen.train(name, 0, STEPS)
        (line,) = screen.lines()
    assert f"{name[-5:]} seed 0" in line
    assert "61.20 %" in line


def test_a_single_run_keeps_its_bar():
    with begin(["vsam"], seeds=1) as screen:
        assert len(screen.lines()) == 1
        screen.train("vsam", 0, STEPS)
        (line,) = screen.lines()
    assert "vsam seed 0" in line
    assert "100%" in line


def test_without_a_terminal_a_status_is_a_line_now_and_then(capsys, monkeypatch):
    with make_status() as say:
        say("too soon")
        monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN_LINES", -1.0)
        say("Reading run 1 of 2")
        say("Reading run 2 of 2")
    assert capsys.readouterr().err == "Reading run 1 of 2\nReading run 2 of 2\n"
