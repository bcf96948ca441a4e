"""The picture of accuracy against cost."""

import io

import pytest
from matplotlib.axes import Axes
from PIL import Image

from lab.helpers import make_row
from vsam.lab.comparison.picture import accuracy_against_cost
from vsam.lab.report.figures.drawing import MARKERS
from vsam.lab.report.style import styles_for


@pytest.mark.parametrize("seeds", [1, 3])
def test_it_is_a_picture_of_fair_size(seeds):
    rows = [
        make_row("sgd", seeds=seeds, samples=0.0),
        make_row("sam", seeds=seeds),
        make_row("vsam", seeds=seeds, samples=300.0),
    ]
    image = Image.open(io.BytesIO(accuracy_against_cost(rows)))
    image.load()
    assert image.format == "PNG"
    assert image.width >= 800
    assert image.height >= 500


def test_the_same_rows_give_the_same_bytes_and_others_do_not():
    rows = [make_row("sgd", samples=0.0), make_row("sam")]
    assert accuracy_against_cost(rows) == accuracy_against_cost(rows)
    assert accuracy_against_cost(rows) != accuracy_against_cost([*rows, make_row("vsam", samples=300.0)])


def test_colours_are_the_reports():
    image = Image.open(io.BytesIO(accuracy_against_cost([make_row("sgd", samples=0.0), make_row("vsam", samples=9.0)])))
    colours = {colour[:3] for _, colour in image.convert("RGB").getcolors(10**6)}
    for style in styles_for(["sgd", "vsam"]).values():
        assert tuple(int(style.color[place : place + 2], 16) for place in (1, 3, 5)) in colours


def test_marks_are_the_reports_in_whatever_order_the_methods_were_named(monkeypatch):
    marks = {}

    def errorbar(axes, cost, accuracy, *, fmt, color, **others):
        marks[color] = fmt

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    accuracy_against_cost([make_row(name) for name in ("vsam", "sam", "sam-5", "sgd")])
    styles = styles_for(["sgd", "sam", "sam-5", "vsam"]).values()
    assert marks == {style.color: MARKERS[style.marker] for style in styles}


def test_one_method_and_equal_points_work():
    assert accuracy_against_cost([make_row()]).startswith(b"\x89PNG")
    assert accuracy_against_cost([make_row("sam", accuracy=0.0), make_row("asam", accuracy=0.0)]).startswith(b"\x89PNG")


def test_names_stand_below_where_they_cannot_cover_each_other():
    rows = [make_row(name) for name in ("sam", "asam", "sam-on")]
    longer = [make_row(f"a name of many letters and number {place}") for place in range(12)]
    heights = [Image.open(io.BytesIO(accuracy_against_cost(some))).height for some in (rows, longer)]
    assert heights[0] < heights[1]
