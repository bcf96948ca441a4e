"""The report and the sharpness page in Chromium: quiet, switchable, readable on a phone, in the dark and in print."""

import pytest

from lab.made_sharpness import made_row, made_slices
from lab.report.made import EVIL, make_comparison, make_run, rename
from vsam.lab.report.write import write_report
from vsam.lab.sharpness import draw

METHODS = ("sgd", "sam", "vsam")
PHONE = {"width": 390, "height": 844, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
IMAGE = "<img src=x onerror=alert(3)>"
PAPER = "getComputedStyle(document.body).backgroundColor"
# A word of every figure, and the first curve.
INK = "[...document.querySelectorAll('figure text')].map((text) => getComputedStyle(text).fill)"
CURVE = "getComputedStyle(document.querySelector('figure .m1 path')).stroke"

pytestmark = pytest.mark.slow  # a browser is a process


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = make_comparison(tmp_path_factory.mktemp("runs"), METHODS, seeds=(0, 1, 2), epochs=12, steps_per_epoch=30)
    make_run(folder / "sam/seed-3", "sam", 3, epochs=12, steps_per_epoch=30, finished=False)
    return write_report([folder], tmp_path_factory.mktemp("report") / "report.html", figures=False).page


@pytest.fixture(scope="module")
def sharpness(tmp_path_factory):
    rows = {"sgd": made_row("sgd", top=9.0, converged=False), "vsam-budget": made_row("vsam-budget")}
    return draw(rows, made_slices(list(rows)), tmp_path_factory.mktemp("pictures"))[0]


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evil")
    rename(make_run(folder / "runs/a"), EVIL, recipe=EVIL)
    rename(make_run(folder / "runs" / IMAGE, seed=1), IMAGE, recipe=EVIL)
    return write_report([folder / "runs"], folder / "report.html", title=EVIL, figures=False).page


@pytest.fixture(params=["report", "sharpness", "evil"])
def page(request):
    return request.getfixturevalue(request.param)


def shown(page, number):
    return page.locator(f"figure .m{number}:visible").count()


@pytest.mark.parametrize("device", [{}, PHONE], ids=["screen", "phone"])
def test_a_page_is_quiet_asks_for_nothing_and_fits(open_page, page, device):
    opened = open_page(page, **device)
    for details in opened.page.locator("details").all():
        details.evaluate("(element) => { element.open = true; }")
    width = opened.page.evaluate("innerWidth")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.messages == []
    assert opened.requests == [page.as_uri()]
    assert opened.page.locator("figure svg").count() > 8


def test_a_phone_shows_figures_in_letters_of_readable_size(open_page, report):
    opened = open_page(report, **PHONE)
    sizes = opened.page.locator("figure text").evaluate_all(
        "(all) => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert min(size for size in sizes if size) > 10


def test_a_switch_hides_a_method_in_all_figures(open_page, report):
    opened = open_page(report)
    before = [shown(opened.page, number) for number in range(3)]
    assert all(before)
    opened.page.get_by_role("checkbox", name="sam", exact=True).uncheck()
    assert [shown(opened.page, number) for number in range(3)] == [before[0], 0, before[2]]
    opened.page.get_by_role("checkbox", name="sam", exact=True).check()
    assert [shown(opened.page, number) for number in range(3)] == before


def test_a_click_on_a_heading_sorts_the_table(open_page, report):
    opened = open_page(report)
    table = opened.page.locator("table").first

    def methods():
        return [name.strip() for name in table.locator("tbody th").all_inner_texts()]

    heading = table.get_by_role("button", name="AIS")
    heading.click()
    assert methods() == ["sgd", "vsam", "sam"]
    assert heading.locator("..").get_attribute("aria-sort") == "descending"
    heading.click()
    assert methods() == ["sam", "vsam", "sgd"]
    table.get_by_role("button", name="method").click()
    assert methods() == ["sam", "sgd", "vsam"]
    assert heading.locator("..").get_attribute("aria-sort") is None


def test_figures_follow_the_dark_and_print_on_white(open_page, report):
    light, dark = open_page(report), open_page(report, color_scheme="dark")
    colours = [(one.page.evaluate(INK), one.page.evaluate(CURVE), one.page.evaluate(PAPER)) for one in (light, dark)]
    assert set(colours[0][0]) == {"rgb(29, 33, 38)"}
    assert set(colours[1][0]) == {"rgb(230, 233, 237)"}
    assert colours[0][1] != colours[1][1]
    assert colours[0][2] != colours[1][2]
    dark.page.emulate_media(media="print")
    assert (dark.page.evaluate(INK), dark.page.evaluate(CURVE), dark.page.evaluate(PAPER)) == colours[0]


def test_names_are_shown_and_never_run(open_page, evil):
    opened = open_page(evil)
    assert opened.page.title() == EVIL
    assert opened.page.locator("h1").inner_text() == EVIL
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script").count() == 1
    assert opened.messages == []


def test_the_policy_forbids_requests(open_page, report):
    opened = open_page(report)
    opened.page.evaluate("fetch('https://example.com/').catch(() => 0)")
    assert any("Content Security Policy" in message for message in opened.messages)
