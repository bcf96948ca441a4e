"""The tables of Lemma 2's averages hold the rows' numbers."""

import re

import pytest

from lab.command import vsam
from vsam.lab.study.convergence.average import SCHEDULES, reading, slope
from vsam.lab.study.convergence.descent import METHODS
from vsam.lab.study.convergence.outcome import MeasuredOutcome

ROWS = [
    {"schedule": s.name, "method": method, "horizon": horizon, "average": (i + 1) / horizon, "average_std": 1e-3}
    | {"seeds": 2}
    for i, s in enumerate(SCHEDULES)
    for method in METHODS
    for horizon in (10, 100, 1000)
]
MARKDOWN, LATEX = MeasuredOutcome({"scale": "tiny", "rows": ROWS}).tables()


@pytest.mark.parametrize(("table", "between"), [(MARKDOWN, "|"), (LATEX, "&")])
def test_a_line_is_a_method_under_a_schedule(table, between):
    lines = [line for line in table.splitlines() if line.count(between) > 3 and re.search(r"\d", line)]
    assert len(lines) == 1 + len(SCHEDULES) * len(METHODS)
    assert "T = 1,000" in lines[0]
    for line, method in zip(lines[1:], [method for _ in SCHEDULES for method in METHODS], strict=True):
        assert method in [cell.strip() for cell in line.split(between)]
    assert "2.0e-01" in lines[1 + len(METHODS)]  # the second schedule's average at T = 10
    assert f"{slope(ROWS, SCHEDULES[0].name, METHODS[0]):+.2f}" in lines[1]


def test_the_reading_is_under_the_table_and_latex_is_plain():
    assert all(f"- {sentence}\n" in MARKDOWN for sentence in reading(ROWS))
    assert LATEX.isascii()


def test_the_command_writes_numbers_tables_and_the_figure(tmp_path):
    command = vsam("study", "convergence", "--scale", "tiny", "--out", "out", folder=tmp_path)
    assert command.code == 0, command.stderr
    for name in ("convergence.json", "convergence.md", "convergence.tex", "figures/convergence.svg"):
        assert f"out/{name}" in command.stdout
        assert (tmp_path / "out" / name).stat().st_size > 100
