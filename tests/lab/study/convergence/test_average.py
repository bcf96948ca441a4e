"""The study of Lemma 2: its rows, that it resumes cell by cell, its reading and its figure."""

import io
import json

import pytest

from vsam.lab.errors import UserError
from vsam.lab.study.convergence.average import SCHEDULES, convergence_figure, reading, run_convergence, slope
from vsam.lab.study.convergence.descent import METHODS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def study(folder):
    return run_convergence("tiny", folder)


def test_there_is_a_row_for_every_schedule_method_and_horizon(study):
    assert (study["study"], study["scale"]) == ("convergence", "tiny")
    keys = [(row["schedule"], row["method"], row["horizon"]) for row in study["rows"]]
    assert keys == [(s.name, method, horizon) for s in SCHEDULES for method in METHODS for horizon in (4, 12, 40)]
    json.dumps(study)


def test_a_row_is_the_mean_over_its_seeds(study):
    for row in study["rows"]:
        first, second = row["averages"]
        assert row["seed_list"] == [0, 1]
        assert row["seeds"] == 2
        assert row["average"] == pytest.approx((first + second) / 2)
        assert row["average_std"] == pytest.approx(abs(first - second) / 2**0.5)
        assert 0 < row["average"] < row["trivial_bound"] == pytest.approx(2.0)


def test_methods_share_their_first_weights_and_sgd_takes_no_samples(study):
    samples = {row["method"]: row["samples"] for row in study["rows"] if row["horizon"] == 40}
    assert samples["sgd"] == 0
    assert samples["sam"] == 40
    assert 20 <= samples["vsam"] < 40


def test_finished_cells_are_kept_and_lost_ones_measured_again(study, folder):
    cells = sorted(folder.rglob("seed-*.json"))
    assert len(cells) == len(SCHEDULES) * len(METHODS) * 2
    before = {path: path.stat().st_mtime_ns for path in cells}
    cells[0].unlink()
    cells[1].write_text(cells[1].read_text()[:40])
    assert run_convergence("tiny", folder) == study
    changed = [path for path in cells if path.stat().st_mtime_ns != before[path]]
    assert changed == cells[:2]


def test_a_cell_of_other_settings_is_not_taken(study, folder):
    path = next(folder.rglob("lemma/sgd/seed-0.json"))
    cell = json.loads(path.read_text())
    cell["settings"]["eta"] = 1.0
    cell["points"][0]["average"] = 99.0
    path.write_text(json.dumps(cell))
    assert run_convergence("tiny", folder) == study


def test_progress_counts_the_steps_of_all_cells_also_of_kept_ones(study, folder):
    calls = []
    run_convergence("tiny", folder, lambda *call: calls.append(call))
    total = len(SCHEDULES) * len(METHODS) * 2 * 40
    assert [done for _, done, _ in calls] == list(range(40, total + 1, 40))
    assert {of for _, _, of in calls} == {total}
    assert calls[0][0] == "lemma sgd seed 0"


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "convergence").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written to"):
        run_convergence("tiny", tmp_path)


def rows_like(power, first=1e-3):
    """Rows whose averages fall like T^power."""
    return [
        {"schedule": s.name, "method": m, "horizon": T, "average": first * T**power, "average_std": 1e-5, "seeds": 3}
        | {"trivial_bound": 2.0}
        for s in SCHEDULES
        for m in METHODS
        for T in (10, 100, 300, 1000)
    ]


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.25])
def test_the_slope_is_the_power_of_the_last_decade(power):
    rows = rows_like(power)
    rows[0]["average"] = 5.0  # before the last decade
    assert slope(rows, "lemma", "sgd") == pytest.approx(power)


def test_the_reading_says_how_every_curve_goes_and_gives_the_lemma_no_verdict():
    sentences = reading(rows_like(-0.5))
    assert len(sentences) == len(SCHEDULES)
    assert all(sentence.count("T^-0.50") == len(METHODS) for sentence in sentences)
    assert not any("supported" in sentence for sentence in sentences)


def test_the_figure_has_a_panel_a_schedule_and_a_curve_a_method(study):
    figure = convergence_figure(study["rows"])
    assert len(figure.axes) == len(SCHEDULES)
    for axes, schedule in zip(figure.axes, SCHEDULES, strict=True):
        assert axes.get_title() == schedule.title
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        labels = [text.get_text() for text in axes.get_legend().get_texts()]
        assert set(METHODS) < set(labels)
        drawn = {tuple(line.get_ydata()) for line in axes.get_lines() if len(line.get_ydata()) == 3}
        for method in METHODS:
            own = [r["average"] for r in study["rows"] if (r["schedule"], r["method"]) == (schedule.name, method)]
            assert tuple(own) in drawn
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg")
    assert buffer.tell() > 10_000


def test_the_lemmas_own_rate_is_the_first_schedule():
    assert (SCHEDULES[0].power, SCHEDULES[0].rho_power) == (1.0, 0.0)
