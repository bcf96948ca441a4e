"""`vsam report` in a process of its own."""

from lab.command import assert_refused, vsam
from lab.report.made import make_comparison, make_run


def test_a_report_of_runs_is_written_to_the_working_folder(tmp_path):
    make_comparison(tmp_path / "runs", methods=("sgd", "sam"), seeds=(0,))
    command = vsam("report", "runs", "--no-figures", folder=tmp_path)
    assert command.code == 0, command.stderr
    assert command.stdout == "report.html: 2 finished runs\n"
    assert "<h1>sgd and sam</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_mistake_is_one_plain_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    assert_refused(vsam("report", "empty", folder=tmp_path), 2, "no run in empty")
    assert_refused(vsam("report", "nowhere", folder=tmp_path), 2, "nowhere does not exist")
    make_run(tmp_path / "run")
    assert_refused(vsam("report", "run", "-o", "page.txt", folder=tmp_path), 2, "must end in .html")
    assert_refused(vsam("report", folder=tmp_path), 2, "RUNS")
