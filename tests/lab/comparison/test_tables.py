"""The table in its four written forms."""

import csv
import io
import json
import re

import pytest
from rich.console import Console

from lab.helpers import make_row
from vsam.lab.comparison.tables import WRITERS, to_csv, to_json, to_latex, to_markdown, to_terminal

ROWS = [make_row(), make_row("sgd", seeds=1, ais_ratio_to_sam=None, speed_to_sgd=None)]


def printed(rows, width=120):
    console = Console(width=width, file=io.StringIO())
    console.print(to_terminal(rows))
    return console.file.getvalue()


def test_every_form_has_an_option():
    assert list(WRITERS) == ["json", "csv", "markdown", "latex"]


def test_json_and_csv_hold_all_numbers_in_full():
    assert json.loads(to_json(ROWS)) == [row.to_dict() for row in ROWS]
    table = list(csv.DictReader(io.StringIO(to_csv(ROWS))))
    assert [entry["accuracy"] for entry in table] == ["71.234", "71.234"]
    assert [entry["speed_to_sgd"] for entry in table] == ["0.521", ""]


def test_markdown_is_a_table_of_one_width():
    title, _, *lines = to_markdown(ROWS).splitlines()
    assert title == "resnet8 on cifar10, 1,234 steps, 1 or 3 seeds"
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert "| sam (n = 3) | 71.23 ± 0.46 | 72.50 ± 0.10 | 1,234 | 2,346 | 1.00 | 0.52 | 1.00 |" in lines


def test_one_seed_has_no_deviation_and_a_missing_ratio_is_a_dash():
    line = to_markdown(ROWS).splitlines()[-1]
    assert line == "| sgd (n = 1) | 71.23 | 72.50 | 1,234 | 2,346 | – | – | 1.00 |"


def test_latex_has_a_column_for_every_cell():
    text = to_latex(ROWS)
    columns = re.search(r"\\begin{tabular}{(l r*|lr*)}", text)
    assert columns is not None
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") + 1 for line in body} == {len(columns[1])}
    assert len(body) == 3
    assert r"71.23 $\pm$ 0.46" in text
    assert not re.search(r"(?m)^[^%].*[^\\]%", text)


@pytest.mark.parametrize(("count", "words"), [(1, "1 seed"), (3, "3 seeds")])
def test_the_title_counts_seeds(count, words):
    assert to_markdown([make_row(seeds=count)]).splitlines()[0].endswith(f", {words}")


def test_the_terminal_shows_the_spread_beside_the_speed():
    text = printed(ROWS)
    assert "0.52 (0.50–0.54)" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_speeds_that_were_not_measured_together_are_marked_each_by_itself():
    apart = make_row(quartiles=None, quartiles_to_sam=None)
    assert "| ~1.00 | ~0.52 | 1.00 |" in to_markdown([apart])
    assert "| 1.00 | ~0.52 | 1.00 |" in to_markdown([make_row(quartiles=None)])
    assert "| ~1.00 | 0.52 | 1.00 |" in to_markdown([make_row(quartiles_to_sam=None)])
    assert "~0.52 " in printed([apart])
    assert r"$\sim$0.52" in to_latex([apart])
    for written in (to_markdown, to_latex):
        assert "not timed in turns" in written([apart])
        assert "not timed in turns" not in written([make_row()])


def test_half_a_sample_is_shown():
    assert "| 4.5 |" in to_markdown([make_row(samples=4.5)])


def test_a_terminal_of_80_columns_cuts_nothing_off():
    usual = [make_row("looksam-5", samples=12_345.3), make_row("vsam"), make_row("sgd")]
    for rows in (usual, [*usual, make_row("vsam-gamma-0.9")]):
        text = printed(rows, width=80)
        assert max(map(len, text.splitlines())) <= 80
        for word in ("gradients", "looksam-5", "12,345.3", "(0.50–0.54)", "71.23 ±"):
            assert word in text
    assert printed(usual, width=80).count("71.23 ± 0.46") == 3
