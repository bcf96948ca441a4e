"""`write_report` and the command: which files appear, and what is refused."""

import pytest
import typer
from typer.testing import CliRunner

from lab.report.made import make_comparison, make_run
from vsam.lab.cli.report import report
from vsam.lab.errors import UserError
from vsam.lab.report import write_report


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_comparison(tmp_path_factory.mktemp("runs"))


def run_command(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(report)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_page_and_everything_for_papers_is_written(runs, tmp_path):
    files = write_report([runs], tmp_path / "deep/page.html")
    folder = tmp_path / "deep/page-figures"
    name = "cifar10-small-resnet8"
    figures = {f"{name}-{figure}" for figure in ("accuracy-speed", "learning-curves", "norms", "samples")}
    assert {path.name for path in files.figures} == {f"{figure}{s}" for figure in figures for s in (".svg", ".png")}
    assert {path.name for path in files.tables} == {f"{name}-table.md", f"{name}-table.tex"}
    assert set(folder.iterdir()) == {*files.figures, *files.tables}
    assert set((tmp_path / "deep").iterdir()) == {files.page, folder}
    assert (files.num_finished, files.problems) == (6, ())


def test_figures_can_be_left_out_and_the_same_runs_give_the_same_page(runs, tmp_path):
    first = write_report([runs], tmp_path / "a.html", figures=False)
    second = write_report([runs], tmp_path / "b.html", figures=False)
    assert first.figures == first.tables == ()
    assert first.page.read_bytes() == second.page.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.html", "b.html"}


def test_it_says_what_it_is_doing_at_every_folder_and_run(runs, tmp_path):
    said = []
    write_report([runs], tmp_path / "page.html", figures=False, say=said.append)
    assert said[0] == f"Searching {runs}: 1 folders, 0 runs found"
    assert [text for text in said if text.startswith("Reading")] == [f"Reading run {n} of 6" for n in range(1, 7)]
    assert said[-1] == f"Writing {tmp_path / 'page.html'}"


def test_flawed_runs_are_named(tmp_path):
    make_run(tmp_path / "good")
    (make_run(tmp_path / "bad", seed=1) / "summary.json").write_text("{")
    files = write_report([tmp_path], tmp_path / "report.html", figures=False)
    assert files.num_finished == 1
    assert len(files.problems) == 1
    assert files.problems[0].startswith(f"{tmp_path / 'bad'}: summary.json is not valid JSON")


@pytest.mark.slow
def test_nothing_but_unfinished_runs_gets_figures_of_what_is_there(tmp_path):
    make_run(tmp_path / "run", finished=False)
    files = write_report([tmp_path / "run"], tmp_path / "report.html")
    assert len(files.figures) == 2 * 3
    assert files.tables == ()


@pytest.mark.parametrize("name", ["config.toml", "report", "report.txt"])
def test_only_a_page_is_overwritten(runs, tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(UserError, match=r"must end in \.html"):
        write_report([runs], tmp_path / name)
    assert (tmp_path / name).read_text() == "precious"


def test_a_folder_is_no_page(runs, tmp_path):
    (tmp_path / "a.html").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        write_report([runs], tmp_path / "a.html")


def test_no_runs_are_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no run in"):
        write_report([tmp_path / "empty"], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_command_says_what_it_wrote(runs, tmp_path):
    page = tmp_path / "out.html"
    done = run_command(runs, "-o", page, "--title", "My & title", "--no-figures")
    assert done.exit_code == 0, done.output
    assert f"{page}: 6 finished runs" in done.output
    assert "<h1>My &amp; title</h1>" in page.read_text(encoding="utf-8")


def test_the_command_names_flawed_runs_on_the_standard_error(tmp_path):
    make_run(tmp_path / "run", finished=False)
    done = run_command(tmp_path, "-o", tmp_path / "out.html", "--no-figures")
    assert done.exit_code == 0
    assert "There is no summary.json" in done.stderr
    assert "0 finished runs" in done.stdout
    assert "Note" not in done.stdout


def test_the_command_needs_runs(tmp_path):
    assert run_command("-o", tmp_path / "out.html").exit_code == 2
    assert isinstance(run_command(tmp_path / "nowhere").exception, UserError)
