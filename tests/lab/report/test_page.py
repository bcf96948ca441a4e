"""The report: which files appear, what the page says, and that nothing in it is more than text."""

import re
from html.parser import HTMLParser

import pytest
import typer
from typer.testing import CliRunner

from lab.report.made import EVIL, make_comparison, make_run, read_groups, rename
from vsam.lab.cli.report import report
from vsam.lab.errors import UserError
from vsam.lab.report.words import overall, result, size
from vsam.lab.report.write import write_report

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
        self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(folder, out, **options):
    return write_report([folder], out / "page.html", figures=False, **options).page.read_text(encoding="utf-8")


def text_of(page):
    return " ".join(" ".join(Reader(page).texts).split())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_comparison(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    folder = make_comparison(tmp_path_factory.mktemp("runs"), methods=("sgd", "sam"))
    rename(make_run(folder / "evil <b>"), EVIL, recipe=EVIL)
    (make_run(folder / "broken </pre><script>", seed=9) / "config.toml").write_text("x = </script>")
    make_run(folder / "sam/seed-5", "sam", 5, finished=False)
    return page_of(folder, tmp_path_factory.mktemp("page"), title=EVIL)


@pytest.mark.slow
def test_the_page_and_everything_for_papers_is_written(runs, tmp_path):
    files = write_report([runs], tmp_path / "deep/page.html")
    figures = {"accuracy-cost", "test-accuracy", "train-accuracy", "test-loss", "train-loss", "samples", "rate"}
    figures |= {"grad-norm", "psf-norm", "psf-share"}
    names = {f"cifar10-small-resnet8-{figure}{suffix}" for figure in figures for suffix in (".svg", ".png")}
    names |= {"cifar10-small-resnet8-table.md", "cifar10-small-resnet8-table.tex"}
    assert names <= {path.name for path in files.others}
    assert set((tmp_path / "deep/page-figures").iterdir()) == set(files.others)
    assert (files.num_finished, files.problems) == (6, ())


def test_the_same_runs_give_the_same_page(runs, tmp_path):
    first, second = (write_report([runs], tmp_path / name, figures=False).page for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.html", "b.html"}


def test_elements_nest_ids_are_unique_and_references_lead_somewhere(evil):
    reader = Reader(evil)
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [one["href"][1:] for _, one in reader.elements if one.get("href", "").startswith("#")]
    assert set(links) <= set(ids)


def test_nothing_points_outside(evil):
    reader = Reader(evil)
    policy = next(a["content"] for a in reader.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    for _, attributes in reader.elements:
        for name in ("src", "href", "action", "srcset"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    assert not re.search(r"url\((?!#)|@import", evil)


def test_names_cannot_become_elements(evil):
    reader = Reader(evil)
    assert len(reader.all("script")) == 1
    assert reader.all("b") == reader.all("img") == []
    assert any("broken </pre><script>" in text for text in reader.texts)
    assert EVIL in reader.texts


def test_the_page_is_readable_without_eyes(evil):
    reader = Reader(evil)
    assert reader.all("html") == [{"lang": "en"}]
    assert len(reader.all("h1")) == 1
    assert len(reader.all("caption")) == len(reader.all("table"))
    assert all("scope" in attributes for attributes in reader.all("th"))
    assert all(re.search(r": \d", a["aria-label"]) for a in reader.all("figure") if "accuracy" in a["aria-label"])


def test_flawed_runs_are_listed_with_the_reason(evil):
    assert "not valid TOML" in text_of(evil)
    assert "Runs: 5 finished, 1 unfinished, 2 with problems" in text_of(evil)


def test_a_page_is_small(tmp_path):
    make_comparison(tmp_path / "runs", seeds=(0, 1), epochs=30, steps_per_epoch=32)
    assert len(page_of(tmp_path / "runs", tmp_path).encode()) < 500_000


def test_the_base_that_ran_is_named_everywhere(tmp_path):
    make_comparison(tmp_path / "runs", ("sgd", "sam"), seeds=(0, 1), changes=("optimizer=adamw",))
    page = page_of(tmp_path / "runs", tmp_path)
    assert "<h1>adamw and sam</h1>" in page
    assert "base optimizer AdamW" in page
    settings = re.sub(r"<pre>.*?</pre>|<details>.*?</details>", "", page, flags=re.DOTALL)
    assert "sgd" not in text_of(settings).replace(str(tmp_path), "").lower()


def test_a_difference_is_decided_or_not(tmp_path):
    make_comparison(tmp_path, ("sgd", "vsam"), seeds=(0, 1, 2))
    [group], _ = read_groups(tmp_path)
    assert "decided: vsam +1.00 (+1.00 to +1.00)" in result(group)
    for seed, accuracy in enumerate((10, 90, 50)):
        make_run(tmp_path / f"sam/seed-{seed}", "sam", seed, accuracy=accuracy)
    [group], _ = read_groups(tmp_path)
    assert "not decided: sam" in result(group)
    assert result(group) == overall([group])


def test_one_seed_decides_nothing(tmp_path):
    make_comparison(tmp_path, seeds=(0,))
    [group], _ = read_groups(tmp_path)
    assert "may be chance" in result(group)
    assert "interval" not in result(group)


def test_the_size_of_what_was_run_is_said(tmp_path):
    numbers = {"train_images": 1600, "available_images": 50_000, "test_images": 400, "parameters": 78_042}
    make_run(tmp_path / "run", changes=("data.noise=0.2",), **numbers)
    [group], _ = read_groups(tmp_path)
    for words in ("1,600 of 50,000 training images", "78,042 parameters", "20% of the training labels are wrong"):
        assert words in size(group)


@pytest.mark.parametrize("value", ["many", None, [], {"a": 1}, float("nan"), -1])
def test_a_summary_that_somebody_edited_still_makes_a_page(tmp_path, value):
    keys = ("train_images", "available_images", "test_images", "parameters", "full_bytes", "quantized_bytes")
    make_run(tmp_path / "runs/a", **dict.fromkeys((*keys, "environment", "date"), value))
    assert "<h1>sam</h1>" in page_of(tmp_path / "runs", tmp_path)


def test_several_groups_count_who_was_ahead(tmp_path):
    for recipe in ("cifar10-small", "cifar100-small"):
        make_comparison(tmp_path / recipe, seeds=(0,), recipe=recipe)
    groups, _ = read_groups(tmp_path)
    assert overall(groups).startswith("Most accurate of 2 comparisons: vsam in 2.")


def test_tiny_runs_are_marked(tmp_path):
    make_run(tmp_path / "runs/run", changes=("name=cifar10-small-tiny",))
    page = page_of(tmp_path / "runs", tmp_path)
    assert "tiny run" in page
    assert "says nothing about the methods" in page


def test_quantized_networks_have_a_table_of_sizes(tmp_path):
    sizes = {"quantized_bytes": 1_000, "full_bytes": 8_000}
    make_run(tmp_path / "runs/run", "vsam", recipe="cifar10-small-lsq", changes=("quantize.checkpoint=none",), **sizes)
    text = text_of(page_of(tmp_path / "runs", tmp_path))
    assert "Size of the quantized weights" in text
    assert "1,000 8,000 8.00" in text


def test_no_sentence_of_a_search_says_test(tmp_path):
    make_run(
        tmp_path / "runs/a", "vsam", changes=("role=trial",), split="validation", train_images=1600, test_images=400
    )
    page = re.sub(r"<details>.*?</details>", "", page_of(tmp_path / "runs", tmp_path), flags=re.DOTALL)
    said = " ".join([text_of(page), *(a["aria-label"] for a in Reader(page).all("figure"))])
    assert "Validation accuracy" in said
    assert "400 validation images" in said
    assert not re.search(r"\btest\b", said.replace(str(tmp_path), ""), re.IGNORECASE)


def test_unfinished_or_broken_runs_alone_still_make_a_page(tmp_path):
    make_run(tmp_path / "runs/a", finished=False)
    assert "No run is finished yet." in page_of(tmp_path / "runs", tmp_path)
    (tmp_path / "runs/a/config.toml").unlink()
    assert "<h1>No usable runs</h1>" in page_of(tmp_path / "runs", tmp_path)


@pytest.mark.parametrize("name", ["config.toml", "report", "report.txt"])
def test_only_a_page_is_overwritten(runs, tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(UserError, match="html"):
        write_report([runs], tmp_path / name)
    assert (tmp_path / name).read_text() == "precious"


def run_command(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_says_what_it_wrote_and_names_flawed_runs_on_stderr(runs, tmp_path):
    (make_run(tmp_path / "bad", seed=1) / "summary.json").write_text("{")
    done = run_command(runs, tmp_path / "bad", "-o", tmp_path / "out.html", "--title", "My & title", "--no-figures")
    assert done.exit_code == 0, done.output
    assert f"{tmp_path / 'out.html'}: 6 finished runs" in done.stdout
    assert "summary.json" in done.stderr
    assert "<h1>My &amp; title</h1>" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_the_command_needs_runs(tmp_path):
    assert run_command("-o", tmp_path / "out.html").exit_code == 2
    assert isinstance(run_command(tmp_path / "nowhere").exception, UserError)
