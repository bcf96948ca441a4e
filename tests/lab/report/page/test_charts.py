"""The interactive figures: valid for plotly, few points, the runs' numbers, names as plain text."""

import json

import plotly.graph_objects
import pytest

from lab.report.made import accuracy_at, make_comparison, make_run
from lab.report.shared import EVIL, read_groups, rename
from vsam.lab.report.page.charts import epoch_charts, sample_chart, step_charts
from vsam.lab.report.page.results import published_numbers
from vsam.lab.report.page.speed_chart import speed_chart
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


def traces(chart, label):
    return [trace for trace in chart.spec["data"] if trace["meta"] == label]


def test_plotly_accepts_every_figure(group):
    charts = charts_of(group)
    assert len(charts) == 1 + 4 + 6 + 1
    for chart in charts:
        plotly.graph_objects.Figure(data=chart.spec["data"], layout=chart.spec["layout"])
        json.dumps(chart.spec, allow_nan=False)


def test_learning_curves_are_means_with_bands_over_seeds(group):
    chart = charts_of(group)[1]
    band, line = traces(chart, "sam")
    seeds = [[accuracy_at("sam", seed, epoch) for epoch in range(3)] for seed in (0, 1)]
    assert line["x"] == [1, 2, 3]
    assert line["y"] == pytest.approx([(low + high) / 2 for low, high in zip(*seeds, strict=True)], abs=5e-4)
    assert band["y"] == pytest.approx(seeds[1] + seeds[0][::-1], abs=5e-4)


def test_unfinished_runs_are_dotted_lines_of_their_own(group):
    *_, loose = traces(charts_of(group)[1], "vsam")
    assert loose["name"] == "vsam, seed 2, unfinished"
    assert loose["line"]["dash"] == "dot"
    assert loose["y"] == pytest.approx([accuracy_at("vsam", 2, epoch) for epoch in range(3)], abs=5e-4)


def test_a_method_has_one_colour_everywhere(group):
    for label, style in styles_for(group.labels).items():
        for chart in charts_of(group):
            for trace in traces(chart, label):
                assert style.color in json.dumps(trace)


def test_accuracies_have_bars_over_seeds_and_speeds_of_so_few_turns_none(group):
    chart = charts_of(group)[0]
    [sam], [sgd] = traces(chart, "sam"), traces(chart, "sgd")
    assert (sam["x"], sam["error_x"]["visible"]) == ([1], False)
    assert sgd["x"][0] > 1
    assert not sgd["error_x"]["visible"]
    assert sgd["error_y"]["array"] == pytest.approx([1.5 / 2**0.5], rel=1e-4)
    assert chart.spec["layout"]["xaxis"]["title"]["text"] == "training speed, SAM = 1"


def test_without_sam_speeds_are_images_a_second(tmp_path):
    [group], _ = read_groups(make_comparison(tmp_path, methods=("sgd", "vsam")))
    chart = charts_of(group)[0]
    assert "images a second" in chart.spec["layout"]["xaxis"]["title"]["text"]
    assert traces(chart, "sgd")[0]["x"] == [1000.5]


def test_the_papers_points_are_hollow(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", "sam", recipe="cifar10-resnet18", epochs=200))
    ours, papers = traces(charts_of(group)[0], "sam")
    assert ours["marker"]["symbol"] == "square" or "-open" not in ours["marker"]["symbol"]
    assert papers["marker"]["symbol"].endswith("-open")
    assert (papers["x"], papers["y"]) == ([1.0], [96.62])
    assert papers["name"] == "sam, the paper's, best epoch"
    layout = charts_of(group)[0].spec["layout"]
    assert "filled: last epoch; hollow: best" in layout["yaxis"]["title"]["text"]


def test_samples_are_a_row_a_run(group):
    chart = charts_of(group)[-1]
    [vsam] = traces(chart, "vsam")
    assert vsam["z"] == [[float(step % 3 == 1) for step in range(1, 13)]] * 3
    assert chart.spec["rows"][1] == ["vsam, seed 0", "vsam, seed 1", "vsam, seed 2, unfinished"]
    assert traces(chart, "sgd") == []


def test_long_runs_become_few_points(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", "sam", epochs=3000, steps_per_epoch=10))
    charts = charts_of(group)
    assert all(len(trace["x"]) <= 500 for chart in charts for trace in chart.spec["data"])
    assert len(json.dumps([chart.spec for chart in charts])) < 200_000


def test_names_are_text_and_nothing_else(tmp_path):
    rename(make_run(tmp_path / "run"), EVIL)
    [group], _ = read_groups(tmp_path)
    for chart in charts_of(group):
        for trace in chart.spec["data"]:
            shown = [trace.get("name", ""), *trace.get("text", [])]
            assert not any("<" in text for text in shown)
        assert not any("<" in name for row in chart.spec.get("rows", []) for name in row)
