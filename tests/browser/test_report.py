"""The report in Chromium: quiet, drawn, with the runs' numbers, switchable, readable on a phone, harmless."""

import json
import re
import statistics

import pytest

from lab.report.made import make_comparison, make_run
from lab.report.shared import EVIL, rename
from vsam.lab.report import write_report
from vsam.lab.report.page.results import HEADINGS

METHODS = ("sgd", "sam", "vsam")
COLUMNS = ["method", *HEADINGS]
PHONE = {"width": 390, "height": 844, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
IMAGE = "<img src=x onerror=alert(3)>"

pytestmark = pytest.mark.slow  # a browser is a process


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = make_comparison(tmp_path_factory.mktemp("runs"), METHODS, seeds=(0, 1, 2), epochs=12, steps_per_epoch=30)
    make_run(folder / "sam/seed-3", "sam", 3, epochs=12, steps_per_epoch=30, finished=False)
    return folder


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    return write_report([runs], tmp_path_factory.mktemp("report") / "report.html", figures=False).page


@pytest.fixture(scope="module")
def opened(open_page, report):
    """The report with all its figures drawn; tests leave it as it was."""
    page = open_page(report)
    assert page.draw_all() == 1 + 4 + 6 + 1
    return page


@pytest.fixture(scope="module")
def evil(open_page, tmp_path_factory):
    """A report of runs whose names mean harm, on a phone."""
    folder = tmp_path_factory.mktemp("evil")
    rename(make_run(folder / "runs/a"), EVIL, recipe=EVIL)
    rename(make_run(folder / "runs" / IMAGE, seed=1), IMAGE, recipe=EVIL)
    page = open_page(write_report([folder / "runs"], folder / "report.html", title=EVIL, figures=False).page, **PHONE)
    page.draw_all()
    return page


def shown(page, label):
    """How many curves, points and rows of a label are in all drawn figures."""
    names = page.locator(".plot .series").evaluate_all("(groups) => groups.map((group) => group.dataset.label)")
    return names.count(label)


def strips(page):
    return page.locator(".plot").last.locator("text.tick").count()


def assert_fits(page):
    """Nothing is wider than the window, also with all details open, but for tables in their boxes."""
    for details in page.locator("details").all():
        details.evaluate("(element) => { element.open = true; }")
    assert page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]") == [390, 390]
    wider = page.locator(".scroll").evaluate_all("(boxes) => boxes.map((box) => box.scrollWidth > box.clientWidth)")
    assert any(wider)


def test_the_page_is_quiet_and_asks_for_nothing(opened, report):
    assert opened.messages == []
    assert opened.requests[0] == report.as_uri()
    assert all(url.startswith(("data:", "blob:")) for url in opened.requests[1:])


def test_every_figure_has_marks(opened):
    marks = opened.page.locator(".plot").evaluate_all(
        "(plots) => plots.map((plot) => plot.querySelectorAll('.curve, .point, .cell').length)"
    )
    assert len(marks) == 12
    assert all(marks), marks
    assert opened.page.locator(".plot").first.locator(".error").count() == len(METHODS)
    assert opened.page.locator(".plot .band").count() > 0


def test_the_tables_numbers_are_the_runs(opened, runs):
    table = opened.page.locator("section table").last
    assert table.locator("thead th").all_inner_texts() == COLUMNS
    for row, method in zip(table.locator("tbody tr").all(), METHODS, strict=True):
        found = [json.loads((runs / method / f"seed-{seed}/summary.json").read_text()) for seed in range(3)]
        cells = [cell.strip() for cell in row.locator("th, td").all_inner_texts()]
        accuracy, best = ([summary[name] for summary in found] for name in ("accuracy", "best"))
        assert cells[0] == method
        assert cells[1] == f"{statistics.fmean(accuracy):.2f} ± {statistics.stdev(accuracy):.2f}"
        assert cells[2] == f"{statistics.fmean(best):.2f} ± {statistics.stdev(best):.2f}"
        assert cells[3].startswith(f"{statistics.fmean(summary['samples'] for summary in found):g} ")
        assert cells[4] == f"{statistics.fmean(summary['ais'] for summary in found):,.0f}"


def test_one_switch_drives_all_figures(opened):
    page = opened.page
    before = {method: shown(page, method) for method in METHODS}
    assert all(before.values())
    page.get_by_role("checkbox", name="sam", exact=True).uncheck()
    assert {method: shown(page, method) for method in METHODS} == before | {"sam": 0}
    assert strips(page) == 3
    page.get_by_role("button", name="none").click()
    assert [shown(page, method) for method in METHODS] == [0, 0, 0]
    page.get_by_role("button", name="all").click()
    assert {method: shown(page, method) for method in METHODS} == before
    assert strips(page) == 7
    assert opened.messages == []


def test_hovering_shows_names_and_numbers(opened):
    plot = opened.page.locator(".plot").nth(1)
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    plot.locator(".tip").wait_for()
    text = plot.locator(".tip").inner_text()
    assert re.search(r"epoch \d", text)
    assert all(re.search(rf"^{method}: \d", text, re.MULTILINE) for method in METHODS)
    opened.page.mouse.move(0, 0)
    assert plot.locator(".tip").count() == 0


def test_a_mouse_zooms_and_a_double_click_shows_all_again(opened):
    plot = opened.page.locator(".plot").nth(1)
    plot.scroll_into_view_if_needed()
    ticks = (
        "(plot) => [...plot.querySelectorAll('text:not(.tick):not(.title)')].map((text) => Number(text.textContent))"
    )
    before, box = plot.evaluate(ticks), plot.bounding_box()
    opened.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 100)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 100)
    opened.page.mouse.up()
    within = plot.evaluate(ticks)
    assert max(within) - min(within) < max(before) - min(before)
    plot.dblclick()
    assert plot.evaluate(ticks) == before


def test_a_click_on_a_heading_sorts_the_table(opened):
    table = opened.page.locator("table.results")

    def methods():
        return [name.strip() for name in table.locator("tbody th").all_inner_texts()]

    speed = table.get_by_role("button", name="images per second")
    speed.click()
    assert methods() == ["sgd", "vsam", "sam"]
    assert speed.locator("..").get_attribute("aria-sort") == "descending"
    speed.click()
    assert methods() == ["sam", "vsam", "sgd"]
    table.get_by_role("button", name="method").click()
    assert methods() == list(METHODS)
    assert speed.locator("..").get_attribute("aria-sort") is None


def test_figures_are_named_with_their_numbers(opened):
    names = opened.page.locator(".plot").evaluate_all("(plots) => plots.map((plot) => plot.getAttribute('aria-label'))")
    assert all(re.search(r"sam .*\d", name) for name in names), names


def test_a_phone_shows_all_toggles_in_lines(open_page, report, tmp_path):
    make_comparison(tmp_path / "runs", ("sgd", "sam", "sam-5", "sam-10", "looksam-5", "ae-sam", "vsam"), seeds=(0,))
    page = open_page(write_report([tmp_path / "runs"], tmp_path / "a.html", figures=False).page, **PHONE).page
    ends = page.locator(".methods label, .methods button").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect()).map((box) => [box.left, box.right])"
    )
    assert all(left >= 0 and right <= 390 for left, right in ends)


def test_a_phone_never_scrolls_sideways_and_switches_hold_for_what_is_drawn_later(open_page, report):
    opened = open_page(report, **PHONE)
    opened.page.get_by_role("checkbox", name="vsam", exact=True).uncheck()
    opened.draw_all()
    assert shown(opened.page, "vsam") == 0
    assert shown(opened.page, "sam") > 0
    assert_fits(opened.page)
    assert opened.messages == []


def test_names_are_shown_and_never_run(evil):
    page = evil.page
    assert evil.messages == []
    assert page.title() == EVIL
    assert page.locator("h1").inner_text() == EVIL
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert page.locator("main b, .plot a").count() == 0


def test_long_names_fit_a_phone(evil):
    assert_fits(evil.page)


def test_headings_and_reasons_are_read_on_a_phone_without_scrolling_sideways(open_page, report):
    page = open_page(report, **PHONE).page
    heights = page.locator("section:not(.problems) thead th").evaluate_all(
        "(cells) => cells.map((cell) => Math.round(cell.getBoundingClientRect().height))"
    )
    assert max(heights) < 45
    reason = page.locator(".problems td").last
    assert "There is no summary.json" in reason.inner_text()
    box = reason.bounding_box()
    assert box["x"] + box["width"] <= 390


def test_a_long_name_leaves_the_numbers_in_sight(open_page, tmp_path):
    rename(make_run(tmp_path / "runs/a"), "long" * 75)
    page = open_page(write_report([tmp_path / "runs"], tmp_path / "report.html", figures=False).page).page
    box = page.locator("section:not(.problems) .scroll")
    assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth")


def test_printing_draws_what_was_never_scrolled_to_in_colours_for_paper(open_page, report):
    opened = open_page(report, height=300, color_scheme="dark")
    page = opened.page
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) != "rgb(255, 255, 255)"
    assert page.locator(".plot svg").count() < 12
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".plot svg").count() == 12
    page.emulate_media(media="print")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('.grid .plot text')).fill") == "rgb(29, 33, 38)"
    page.emulate_media(media="screen")
    assert page.evaluate(paper) != "rgb(255, 255, 255)"
    assert opened.messages == []


def test_the_papers_numbers_are_marked(open_page, tmp_path):
    make_comparison(tmp_path / "runs", ("sam", "vsam"), seeds=(0,), recipe="cifar10-resnet18", epochs=200)
    opened = open_page(write_report([tmp_path / "runs"], tmp_path / "report.html", figures=False).page)
    heads = opened.page.locator("section table thead tr").first.locator("th").all_inner_texts()
    assert heads == ["method", "our runs", "the paper’s numbers, not ours"]
    cells = opened.page.locator("section table tbody tr").last.locator("td").all_inner_texts()
    assert cells[-4:] == ["96.64 ± 0.12", "23,579", "2,492", "1.40"]
    assert opened.messages == []
    opened.page.evaluate("fetch('https://example.com/').catch(() => 0)")
    assert any("Content Security Policy" in message for message in opened.messages)
