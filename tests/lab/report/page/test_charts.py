"""The interactive figures: few points, the runs' numbers, names as they are, and the same in words."""

import json

import pytest

from lab.report.made import accuracy_at, make_comparison, make_run
from lab.report.shared import EVIL, read_groups, rename
from vsam.lab.report.page.charts import epoch_charts, sample_chart, speed_chart, step_charts
from vsam.lab.report.page.results import published_numbers
from vsam.lab.report.style import styles_for


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    folder = make_comparison(tmp_path_factory.mktemp("runs"))
    make_run(folder / "vsam/seed-2", "vsam", 2, finished=False)
    return read_groups(folder)[0][0]


def charts_of(group):
    styles = styles_for(group.labels)
    speed = speed_chart(group, styles, published_numbers(group))
    return [speed, *epoch_charts(group, styles), *step_charts(group, styles), sample_chart(group, styles)]


def series(chart, label):
    return [one for one in chart.spec["series"] if one["label"] == label]


def test_every_figure_is_json_with_what_its_kind_needs(group):
    charts = charts_of(group)
    assert [chart.spec["kind"] for chart in charts] == ["points", *["curves"] * 10, "strips"]
    for chart in charts:
        json.dumps(chart.spec, allow_nan=False)
        assert all({"label", "color"} <= one.keys() for one in chart.spec["series"])


def test_learning_curves_are_means_with_bands_over_seeds(group):
    [line] = series(charts_of(group)[1], "sam")
    seeds = [[accuracy_at("sam", seed, epoch) for epoch in range(3)] for seed in (0, 1)]
    assert line["x"] == [1, 2, 3]
    assert line["y"] == pytest.approx([(low + high) / 2 for low, high in zip(*seeds, strict=True)], abs=5e-4)
    assert line["low"] == pytest.approx(seeds[0], abs=5e-4)
    assert line["high"] == pytest.approx(seeds[1], abs=5e-4)


def test_one_seed_has_no_band_even_where_a_point_is_several_steps(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", "sam", epochs=300, steps_per_epoch=4))
    curves = [chart for chart in charts_of(group) if chart.spec["kind"] == "curves"]
    assert any(len(chart.spec["series"][0]["x"]) < 300 for chart in curves)
    assert not any("low" in one or "high" in one for chart in curves for one in chart.spec["series"])


def test_unfinished_runs_are_dotted_lines_of_their_own(group):
    *_, loose = series(charts_of(group)[1], "vsam")
    assert loose["name"] == "vsam, seed 2, unfinished"
    assert loose["dash"] == "dot"
    assert loose["y"] == pytest.approx([accuracy_at("vsam", 2, epoch) for epoch in range(3)], abs=5e-4)


def test_a_method_has_one_colour_everywhere(group):
    for label, style in styles_for(group.labels).items():
        for chart in charts_of(group):
            assert all(one["color"] == style.color for one in series(chart, label))


def test_accuracies_have_bars_over_seeds_and_speeds_of_so_few_turns_none(group):
    chart = charts_of(group)[0]
    [sam], [sgd] = series(chart, "sam"), series(chart, "sgd")
    assert (sam["x"], sam["x_std"]) == (1, 0)
    assert sgd["x"] > 1
    assert sgd["x_std"] == 0
    assert sgd["y_std"] == pytest.approx(1.5 / 2**0.5, rel=1e-4)
    assert chart.spec["x"] == "training speed, SAM = 1"


def test_without_sam_speeds_are_images_per_second(tmp_path):
    [group], _ = read_groups(make_comparison(tmp_path, methods=("sgd", "vsam")))
    chart = charts_of(group)[0]
    assert chart.spec["x"] == "training speed, images per second"
    assert series(chart, "sgd")[0]["x"] == 1000.5


def test_the_papers_points_are_hollow(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", "sam", recipe="cifar10-resnet18", epochs=200))
    ours, papers = series(charts_of(group)[0], "sam")
    assert "hollow" not in ours
    assert papers["hollow"]
    assert (papers["x"], papers["y"]) == (1, 96.62)
    assert papers["name"] == "sam, the paper's"
    assert "filled: last epoch; hollow: best" in charts_of(group)[0].spec["y"]


def test_samples_are_a_row_a_run(group):
    chart = charts_of(group)[-1]
    [vsam] = series(chart, "vsam")
    assert [row["share"] for row in vsam["rows"]] == [[int(step % 3 == 1) for step in range(1, 13)]] * 3
    assert [row["name"] for row in vsam["rows"]] == ["vsam, seed 0", "vsam, seed 1", "vsam, seed 2, unfinished"]
    assert series(chart, "sgd") == []


def test_every_figure_says_its_numbers_in_words(group):
    speed, accuracy, *_, samples = charts_of(group)
    rows = {row.label: row for row in group.rows}
    assert (
        f"sgd {rows['sgd'].accuracy:.2f} % at {rows['sgd'].ais_ratio_to_sam:.2f} times SAM's speed" in speed.alternative
    )
    assert f"sam {rows['sam'].accuracy:.4g}; " in accuracy.alternative
    assert accuracy.alternative.startswith("Test accuracy over the epochs, at the end: ")
    assert samples.alternative == "Fraction of the 12 steps that were sampled: sam 100%; vsam 33%."


def test_long_runs_become_few_points(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", "sam", epochs=3000, steps_per_epoch=10))
    charts = charts_of(group)
    curves = [one for chart in charts for one in chart.spec["series"] if chart.spec["kind"] == "curves"]
    assert all(len(one["x"]) <= 500 for one in curves)
    assert len(json.dumps([chart.spec for chart in charts])) < 200_000


def test_names_are_as_they_are(tmp_path):
    rename(make_run(tmp_path / "run"), EVIL)
    [group], _ = read_groups(tmp_path)
    assert all(one["name"] == EVIL for chart in charts_of(group)[:-1] for one in chart.spec["series"])
