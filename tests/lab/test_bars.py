"""Bars: names and notes are cut so that the rest is not."""

import io

import pytest
from rich.console import Console

from vsam.lab.bars import fit_name, fit_note, make_bars


def bars(width):
    return make_bars(Console(file=io.StringIO(), force_terminal=True, width=width))


def test_a_name_keeps_its_end_where_it_is_too_long():
    name = "cifar10-small-noisy vsam-gamma-0.6 seed 0"
    assert fit_name(bars(80), name) == f"…{name[-33:]}"
    assert fit_name(bars(120), name) == name


@pytest.mark.parametrize(
    ("width", "expected"),
    [(40, "61.20 %"), (50, "61.20 %  rate 0.50"), (60, "61.20 %  rate 0.50  loss 1.200"), (34, "61.2…")],
)
def test_a_note_has_the_parts_that_fit_beside_the_longest_name(width, expected):
    progress = bars(width)
    progress.add_task("sam", total=1, note="", visible=False)
    assert fit_note(progress, ["61.20 %", "rate 0.50", "loss 1.200"]) == expected


def test_brackets_are_no_markup():
    progress = bars(80)
    progress.add_task("x[/a]b", total=1, note="[red]")
    progress.refresh()
    progress.console.print(progress.get_renderable())
    assert "x[/a]b" in progress.console.file.getvalue()
    assert "[red]" in progress.console.file.getvalue()
