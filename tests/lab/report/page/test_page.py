"""The page as a file: valid, self-contained, and every text escaped."""

import json
from html.parser import HTMLParser

import pytest

from lab.report.made import make_comparison, make_run
from lab.report.shared import EVIL, read_groups, rename
from vsam.lab.report.page.page import make_page

VOID = {"meta", "link", "input", "br"}


class Reader(HTMLParser):
    """Collects elements and texts, and fails where elements do not nest."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    folder = make_comparison(tmp_path_factory.mktemp("runs"), methods=("sgd", "sam"))
    rename(make_run(folder / "evil <b>"), EVIL, recipe=EVIL)
    broken = make_run(folder / "broken </pre><script>", seed=9)
    (broken / "config.toml").write_text("x = </script>")
    make_run(folder / "sam/seed-5", "sam", 5, finished=False)
    return make_page(*read_groups(folder), title=EVIL)


def test_elements_nest_and_ids_are_unique(evil):
    reader = Reader(evil)
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"][1:] for attributes in reader.all("a") if attributes["href"].startswith("#")]
    assert set(links) <= set(ids)


def test_the_page_says_what_it_is(evil):
    reader = Reader(evil)
    assert reader.all("html") == [{"lang": "en"}]
    assert [data for tag, data in reader.texts if tag == "title"] == [EVIL]
    assert len(reader.all("h1")) == 1
    assert len(reader.all("caption")) == len(reader.all("table")) == 3
    assert all("scope" in attributes for attributes in reader.all("th"))
    assert all(len(a["aria-label"]) > 30 for a in reader.all("div") if a.get("class") == "plot")


def test_nothing_points_outside(evil):
    reader = Reader(evil)
    policy = next(a["content"] for a in reader.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    for _, attributes in reader.elements:
        for name in ("src", "href", "action", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert "url(" not in evil[: evil.index("</style>")]
    assert "@import" not in evil[: evil.index("</style>")]


def test_a_page_is_small(evil, tmp_path):
    assert len(Reader(evil).all("script")) == 3
    make_comparison(tmp_path, seeds=(0,), epochs=30, steps_per_epoch=32)
    assert len(make_page(*read_groups(tmp_path)).encode()) < 150_000


def test_tiny_runs_are_marked(tmp_path):
    make_run(tmp_path / "run", changes=("name=cifar10-small-tiny",))
    page = make_page(*read_groups(tmp_path))
    assert page.count('<span class="badge">tiny run</span>') == 2
    assert "A tiny run tests the program and says nothing about the methods." in page
    make_run(tmp_path / "other/run")
    assert '<span class="badge">' not in make_page(*read_groups(tmp_path / "other"))


def test_the_page_says_its_date_and_its_sum(tmp_path):
    make_run(tmp_path / "run", "sam", date="2026-02-27T10:00:00+00:00")
    page = make_page(*read_groups(tmp_path))
    assert "runs finished on 27 February 2026." in page
    assert '<p class="summary">sam reached ' in page


def test_details_are_round_numbers_with_plain_names(tmp_path):
    make_run(tmp_path / "run", ais=1234.56789, seconds=0.123456, train_images=2000, split="test")
    texts = [data for _, data in Reader(make_page(*read_groups(tmp_path))).texts]
    assert {"1,234.57", "0.123", "2,000", "train images"} <= set(texts)
    assert not any("1234.5" in text or "0.12345" in text for text in texts if not text.startswith("{"))


def test_names_cannot_become_elements(evil):
    reader = Reader(evil)
    assert {attributes.get("value") for attributes in reader.all("input")} == {"sgd", "sam", EVIL}
    assert any(data == f"Recipe {EVIL}" for _, data in reader.texts)
    assert any("broken </pre><script>" in data for _, data in reader.texts)
    assert reader.all("b") == []


def test_the_figures_data_survive(evil):
    start = evil.index('id="charts">') + len('id="charts">')
    charts = json.loads(evil[start : evil.index("</script>", start)])["charts"]
    assert {one["label"] for chart in charts for one in chart["spec"]["series"]} == {"sgd", "sam", EVIL}


def test_runs_that_are_not_whole_are_listed_with_the_reason(evil):
    text = " ".join(data for _, data in Reader(evil).texts)
    assert "5 finished runs, 1 unfinished" in text.replace(" , ", ", ")
    assert "config.toml is not valid TOML" in text
    assert "There is no summary.json" in text


def test_broken_runs_alone_still_make_a_page(tmp_path):
    (make_run(tmp_path / "run") / "config.toml").unlink()
    reader = Reader(make_page(*read_groups(tmp_path)))
    assert ("h1", "No usable runs") in reader.texts
    assert len(reader.all("script")) == 3


def test_a_long_list_of_runs_that_are_not_whole_is_folded(tmp_path):
    for count, is_folded in ((5, False), (6, True)):
        folder = tmp_path / f"{count}"
        for seed in range(count):
            make_run(folder / f"seed-{seed}", seed=seed, finished=False)
        section = make_page(*read_groups(folder)).partition('id="problems"')[2].partition("</section>")[0]
        assert ("<details>" in section) == is_folded
        assert section.count(f"{folder}/seed-") == count


def test_unfinished_runs_alone_make_a_page_with_curves(tmp_path):
    make_run(tmp_path / "run", finished=False)
    reader = Reader(make_page(*read_groups(tmp_path)))
    assert ("p", "No run of this group has finished.") in reader.texts
    assert len([a for a in reader.all("div") if a.get("class") == "plot"]) == 4 + 6 + 1
