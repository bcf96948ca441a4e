"""The table in its written forms."""

import csv
import io
import json
import re

import pytest
from rich.console import Console

from lab.helpers import make_row
from vsam.lab.report.tables import WRITERS, to_csv, to_json, to_latex, to_markdown, to_terminal
from vsam.lab.statistics import Interval

ROWS = [make_row(), make_row("sgd", seeds=1, ais_ratio_to_sam=None, speed_to_sgd=None)]


def printed(rows, width=120):
    console = Console(width=width, file=io.StringIO())
    console.print(to_terminal(rows))
    return console.file.getvalue()


def line_of(rows, label):
    return next(line for line in to_markdown(rows).splitlines() if line.startswith(f"| {label}"))


def test_json_and_csv_hold_all_numbers_in_full():
    assert json.loads(to_json(ROWS)) == [row.to_dict() for row in ROWS]
    table = list(csv.DictReader(io.StringIO(to_csv(ROWS))))
    assert [entry["accuracy"] for entry in table] == ["71.234", "71.234"]
    assert [entry["speed_to_sgd"] for entry in table] == ["0.521", ""]


def test_json_has_the_public_keys():
    keys = "data model method seeds steps accuracy accuracy_std best best_std samples ais ais_ratio_to_sam speed_to_sgd"
    assert {*keys.split(), "ideal_ratio"} <= json.loads(to_json(ROWS))[0].keys()


def test_markdown_is_a_table_of_one_width():
    assert line_of(ROWS, "sam") == "| sam (n = 3) | 71.23 ± 0.46 | 72.50 ± 0.10 | 1,234 | 2,346 | 1.00 | 0.52 | 1.00 |"
    assert len({line.count("|") for line in to_markdown(ROWS).splitlines() if line.startswith("|")}) == 1


def test_one_seed_has_no_deviation_and_a_missing_ratio_is_a_dash():
    assert line_of(ROWS, "sgd") == "| sgd (n = 1) | 71.23 | 72.50 | 1,234 | 2,346 | – | – | 1.00 |"


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_the_base_that_ran_is_named(form):
    rows = [make_row("adamw"), make_row("sam", to_base=Interval(1.0, 0.5, 1.5, 3, is_paired=True))]
    text = WRITERS[form](rows)
    assert "adamw" in text
    assert "of adamw" in text
    assert "difference to adamw" in text
    assert "sgd" not in text.lower()
    assert "sgd" not in printed(rows).lower()


def test_a_difference_says_whether_it_is_decided():
    rows = [
        make_row("sgd"),
        make_row("sam", to_base=Interval(1.0, 0.5, 1.5, 3, is_paired=True)),
        make_row("vsam", to_base=Interval(0.25, -0.5, 1.0, 3, is_paired=True)),
    ]
    assert r"+1.00 ± 0.50\*" in line_of(rows, "sam")
    assert "+0.25 ± 0.75 |" in line_of(rows, "vsam")


def test_averaged_weights_get_a_column_if_any_run_has_them():
    assert "averaged" not in to_markdown(ROWS)
    rows = [make_row("sgd", averaged=73.5, averaged_std=0.25), make_row("sam")]
    assert "73.50 ± 0.25" in line_of(rows, "sgd")
    assert "| – |" in line_of(rows, "sam")


def test_latex_has_a_column_for_every_cell():
    text = to_latex(ROWS)
    columns = re.search(r"\\begin{tabular}{(l r*|lr*)}", text)
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") + 1 for line in body} == {len(columns[1])}
    assert len(body) == 3
    assert r"71.23 $\pm$ 0.46" in text
    assert not re.search(r"(?m)^[^%].*[^\\]%", text)


def test_a_latex_row_that_starts_with_a_star_is_no_argument_of_the_line_before():
    assert "\n{}* &" in to_latex([make_row("*")])


def test_speeds_that_were_not_measured_together_are_marked():
    assert "| ~1.00 | ~0.52 |" in line_of([make_row("sgd", quartiles=None, quartiles_to_sam=None)], "sgd")
    assert "| 1.00 | ~0.52 |" in line_of([make_row("sgd", quartiles=None)], "sgd")


def test_a_terminal_of_80_columns_cuts_nothing_off():
    rows = [make_row("looksam-5", samples=12_345.3), make_row("vsam"), make_row("sgd")]
    text = printed(rows, width=80)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("gradients", "looksam-5", "12,345.3", "(0.50–0.54)", "71.23 ±"):
        assert word in text


def test_names_stay_names():
    name = "a|b_{\\c} [red]*"
    assert name in printed([make_row(name, seeds=1)], 160)
    heading, line = to_markdown([make_row(name)]).splitlines()[2::2][:2]
    assert line.replace("\\|", "").count("|") == heading.count("|")
