"""Figures: the numbers that were given, texts as texts, the same bytes, colours that anybody can tell apart."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from lab.helpers import make_row
from lab.report.made import EVIL
from vsam.lab.report.figures import (
    PALETTE,
    Curve,
    Point,
    bars,
    contours,
    cost_figure,
    curves,
    points,
    save,
    strips,
    styles_for,
    svg,
)

SVG = "{http://www.w3.org/2000/svg}"
PAPER = ("#ffffff", "#14171b")
# Machado et al., A Physiologically-based Model for Simulation of Color Vision Deficiency, 2009: severity 1.
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(color):
    values = np.array([int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(light):
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]) @ light
    axes = np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]])
    return axes @ np.cbrt(np.clip(cones, 0, None))


def made(labels=("sgd", "sam"), **options):
    styles = styles_for(labels)
    lines = [Curve(label, np.arange(1, 6), np.arange(5) + place, **options) for place, label in enumerate(labels)]
    return curves(lines, styles, x="epoch", y="test accuracy, %"), styles


def texts(svg_text):
    return ["".join(one.itertext()).strip() for one in ElementTree.fromstring(svg_text).iter(f"{SVG}text")]


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
def test_any_two_colours_can_be_told_apart_and_stand_out_from_the_paper(paper, vision):
    colors = [pair[paper] for pair in PALETTE]
    seen = [oklab(np.clip(np.array(VISION[vision]) @ linear(color), 0, 1)) for color in colors]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 0.08
    weights = np.array([0.2126, 0.7152, 0.0722])
    for color in colors:
        low, high = sorted(float(weights @ linear(one)) for one in (color, PAPER[paper]))
        assert (high + 0.05) / (low + 0.05) >= 2.95


def test_eight_labels_have_eight_colours_and_the_best_known_keep_theirs():
    styles = styles_for(["a", "b", "sgd", "sam", "c", "vsam", "vsam-budget", "d"])
    assert len({style.place for style in styles.values()}) == 8
    assert styles_for(["sgd", "adamw"])["sgd"].place != styles_for(["sgd", "adamw"])["adamw"].place
    assert styles["sam"].place == styles_for(["x", "sam"])["sam"].place
    assert [style.number for style in styles.values()] == list(range(8))


def test_more_labels_than_colours_differ_in_marker_and_dash():
    styles = styles_for(f"m{number}" for number in range(24))
    assert len({(style.place, style.marker) for style in styles.values()}) == 24
    assert len({(style.place, str(style.dash)) for style in styles.values()}) == 24


def test_every_curve_is_labelled_at_its_end_and_no_two_labels_overlap():
    figure, styles = made([f"method-{number}" for number in range(12)])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]  # without the lines to the curves
    assert len(boxes) == 12
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(figure.bbox.x1 >= box.x1 for box in boxes)
    assert {f"method-{number}" for number in range(12)} <= set(texts(svg(figure, styles, "a")))


def test_points_are_where_the_rows_are_and_labelled():
    figure = cost_figure([make_row("sgd", ideal_ratio=2.0, accuracy=60.5), make_row("sam", accuracy=62.5)])
    drawn = [container.lines[0].get_xydata()[0].tolist() for container in figure.axes[0].containers]
    assert drawn == [[1.0, 60.5], [2.0, 62.5]]
    assert [text.get_text() for text in figure.axes[0].texts] == ["sgd", "sam"]


def test_labels_of_crowded_points_do_not_overlap():
    labels = [f"method-{number}" for number in range(8)]
    found = [Point(label, 1.2 + 0.01 * place, 70 + 0.02 * place) for place, label in enumerate(labels)]
    figure = points(found, styles_for(labels), x="x", y="y")
    figure.draw_without_rendering()
    boxes = [text.get_window_extent().shrunk(0.95, 0.8) for text in figure.axes[0].texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_a_page_can_switch_and_colour_everything_of_a_label():
    figure, styles = made(low=np.zeros(5), high=np.full(5, 9.0))
    text = svg(figure, styles, "one")
    assert text.count('class="m0"') == text.count('class="m1"') == 4  # curve, band, label and the line to it
    assert not re.search(r"#(?!ffffff)[0-9a-f]{6}\b", text)
    assert "var(--c1)" in text
    assert "currentColor" in text


@pytest.mark.parametrize(
    "draw",
    [
        lambda styles: points([Point("sam", 1, 2, 0.1, 0.2)], styles, x="x", y="y"),
        lambda styles: bars({"sam": (1.0, 0.1, True)}, styles, x="x"),
        lambda styles: strips({"sam": np.array([0.5, 1.0])}, styles, x="step", total=2),
    ],
)
def test_every_kind_of_figure_can_be_switched(draw):
    styles = styles_for(["sam"])
    assert 'class="m0"' in svg(draw(styles), styles, "one")


def test_ids_differ_between_figures_and_every_reference_has_its_id():
    figure, styles = made()
    one, other = (svg(figure, styles, name) for name in ("one", "other"))
    ids, others = (re.findall(r' id="([^"]*)"', text) for text in (one, other))
    assert len(ids) == len(set(ids))
    assert set(ids).isdisjoint(others)
    assert set(re.findall(r'(?:url\(|href=")#([^)"]*)', one)) <= set(ids)


def test_names_are_text():
    figure, styles = made((EVIL, "sam"))
    root = ElementTree.fromstring(svg(figure, styles, "one"))
    assert not list(root.iter(f"{SVG}script"))
    assert any("script" in "".join(element.itertext()) for element in root.iter(f"{SVG}text"))


def test_files_are_the_same_every_time_whatever_the_users_settings(tmp_path):
    first = save(made()[0], tmp_path / "first")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        second = save(made()[0], tmp_path / "second.v2")
    assert [path.name for path in first + second] == ["first.svg", "first.png", "second.v2.svg", "second.v2.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with Image.open(first[1]) as image:
        assert min(image.size) > 500


def test_contours_show_values_that_are_not_finite_nowhere_else():
    axis = np.linspace(-1, 1, 5)
    values = 1 + axis[:, None] ** 2 + axis**2
    values[0, 0] = np.nan
    figure = contours(axis, values, [1, 1.5, 2, 3], unit="loss, nats")
    assert "loss, nats" in texts(svg(figure, {}, "one"))
