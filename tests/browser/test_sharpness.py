"""The page of vsam sharpness in Chromium: quiet, drawn, switchable, turned by dragging, readable on a phone."""

import pytest

from lab.flatness.made import made_row, made_slices
from vsam.lab.flatness.write import write_pictures

pytestmark = pytest.mark.slow  # a browser is a process


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    rows = {"sgd": made_row("sgd", top=9.0, converged=False), "vsam-budget": made_row("vsam-budget")}
    return write_pictures(rows, made_slices(list(rows)), tmp_path_factory.mktemp("pictures"))[0]


@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_quiet_and_everything_is_drawn_within_the_screen(open_page, page, width):
    opened = open_page(page, width=width)
    assert opened.draw_all() == 6 + 2 + 2 + 2 + 1
    assert opened.messages == []
    assert opened.requests == [page.as_uri()]
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.locator("rect.bar").count() == 12
    assert opened.page.locator("polygon.face").count() == 2 * 36
    names = opened.page.locator(".plot").first.locator("text.tick")
    left = opened.page.locator(".plot").first.bounding_box()["x"]
    assert all(names.nth(i).bounding_box()["x"] >= left - 1 for i in range(2))  # no name is cut


def test_a_run_can_be_hidden_and_a_surface_turned(open_page, page):
    opened = open_page(page)
    opened.draw_all()
    faces = opened.page.locator(".turnable polygon.face")
    before = faces.first.get_attribute("points")
    box = opened.page.locator(".turnable").first.bounding_box()
    opened.page.mouse.move(box["x"] + 100, box["y"] + 100)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 200, box["y"] + 120, steps=4)
    opened.page.mouse.up()
    assert faces.first.get_attribute("points") != before
    opened.page.locator('input[value="sgd"]').uncheck()
    assert opened.page.locator("rect.bar").count() == 6
    assert opened.page.locator('.series[data-label="sgd"]').count() == 0
    assert opened.messages == []


def test_pointing_at_a_contour_tells_the_loss(open_page, page):
    opened = open_page(page)
    opened.draw_all()
    plot = opened.page.locator(".plot").nth(8)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert "loss" in plot.locator(".tip").inner_text()
