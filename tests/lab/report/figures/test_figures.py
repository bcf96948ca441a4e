"""The figures for papers: the runs' numbers, texts as texts, and the same bytes every time."""

import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
from PIL import Image

from lab.helpers import make_row
from lab.report.made import accuracy_at, make_comparison, make_run
from lab.report.shared import EVIL, read_groups, rename
from vsam.lab.paper.numbers import Published
from vsam.lab.report.figures.figures import accuracy_against_speed, learning_curves, norms, sample_strips, save_figure

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    return read_groups(make_comparison(tmp_path_factory.mktemp("runs"), seeds=(0, 1, 2)))[0][0]


def texts(figure, path):
    svg, _ = save_figure(figure, path / "figure")
    root = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    return ["".join(element.itertext()).strip() for element in root.iter(f"{SVG}text")]


@pytest.mark.slow
def test_both_files_are_written_and_are_the_same_every_time(group, tmp_path):
    first = save_figure(learning_curves(group), tmp_path / "first")
    second = save_figure(learning_curves(group), tmp_path / "second.v2")
    assert [path.name for path in first + second] == ["first.svg", "first.png", "second.v2.svg", "second.v2.png"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert "date" not in first[0].read_text().lower()
    with Image.open(first[1]) as image:
        image.load()
        assert min(image.size) > 800


def test_the_users_own_settings_of_matplotlib_do_not_matter(group, tmp_path):
    plain = save_figure(sample_strips(group), tmp_path / "plain")[1].read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        changed = save_figure(sample_strips(group), tmp_path / "changed")[1].read_bytes()
    assert plain == changed


def test_points_are_where_the_rows_are(tmp_path):
    rows = [make_row("sgd", ais_ratio_to_sam=1.9, accuracy=60.5), make_row("sam", ais_ratio_to_sam=1.0, accuracy=62.5)]
    figure = accuracy_against_speed(rows, deviations={"sgd": 0.1})
    [axes] = figure.axes
    assert [tuple(map(float, container.lines[0].get_xydata()[0])) for container in axes.containers] == [
        (1.9, 60.5),
        (1.0, 62.5),
    ]
    assert [container.has_xerr for container in axes.containers] == [True, False]
    assert all(container.has_yerr for container in axes.containers)
    found = texts(figure, tmp_path)
    assert {"sgd", "sam", "training speed, SAM = 1"} <= set(found)
    assert any("one standard deviation" in text for text in found)


def height(figure):
    figure.draw_without_rendering()
    return figure.axes[0].get_window_extent().height


def test_names_are_in_the_legend_and_take_no_room_from_the_points():
    speeds = {"sgd": 2.0, "sam": 1.0, "sam-5": 1.7, "vsam": 1.68, "vsam-a": 1.69, "looksam-5": 1.71}
    rows = [make_row(name, ais_ratio_to_sam=speed, accuracy=60 + speed) for name, speed in speeds.items()]
    figure = accuracy_against_speed(rows)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(speeds)
    assert height(figure) == pytest.approx(height(accuracy_against_speed(rows[:2])), rel=0.05)


def test_one_seed_has_no_bars():
    figure = accuracy_against_speed([make_row(seeds=1, accuracy_std=0.0)])
    assert not figure.axes[0].containers[0].has_yerr
    assert "one seed" in figure.axes[0].get_title()


def test_the_papers_points_are_hollow_and_said_to_be_the_papers():
    figure = accuracy_against_speed([make_row()], published={"sam": Published(accuracy=96.6, of_sam=100)})
    hollow = [line for line in figure.axes[0].lines if line.get_fillstyle() == "none"]
    assert [tuple(map(float, line.get_xydata()[0])) for line in hollow] == [(1.0, 96.6)]
    assert "hollow: the paper’s" in figure.axes[0].get_title()


def test_the_papers_points_have_the_papers_bars():
    published = {"sam": Published(96.6, 0.5, of_sam=100), "vsam": Published(96.7, of_sam=140)}
    rows = [make_row(seeds=1, accuracy_std=0.0), make_row("vsam", seeds=1, accuracy_std=0.0)]
    figure = accuracy_against_speed(rows, published=published)
    _, _, sam, vsam = figure.axes[0].containers
    [bars] = sam.lines[2]
    assert bars.get_segments()[0].tolist() == [[1.0, pytest.approx(96.1)], [1.0, pytest.approx(97.1)]]
    assert not vsam.has_yerr
    assert "its bars over three seeds" in figure.axes[0].get_title()


def test_the_axis_says_of_which_epoch_the_points_are():
    papers = accuracy_against_speed([make_row()], published={"sam": Published(accuracy=96.6, of_sam=100)})
    assert "filled: last epoch; hollow: best" in papers.axes[0].get_ylabel()
    assert accuracy_against_speed([make_row()]).axes[0].get_ylabel() == "test accuracy of the last epoch, %"


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_long_names_are_shortened_so_that_figures_have_room(tmp_path):
    for number in range(3):
        rename(make_run(tmp_path / str(number), seed=number), "long-name-" * 30 + str(number), recipe="recipe-" * 40)
    [group], _ = read_groups(tmp_path)
    for figure in (learning_curves(group), norms([group]), accuracy_against_speed(group.rows), sample_strips(group)):
        found = texts(figure, tmp_path)
        assert max(map(len, found)) < 110
        assert any("…" in text for text in found)


def test_learning_curves_are_means_over_seeds(group, tmp_path):
    figure = learning_curves(group)
    accuracy = figure.axes[0]
    sam = accuracy.lines[group.labels.index("sam")]
    expected = [sum(accuracy_at("sam", seed, epoch) for seed in range(3)) / 3 for epoch in range(3)]
    assert sam.get_ydata().tolist() == pytest.approx(expected)
    assert sam.get_xdata().tolist() == [1, 2, 3]
    assert {"sgd", "sam", "vsam", "test accuracy, %", "training loss, nats"} <= set(texts(figure, tmp_path))


@pytest.mark.slow
def test_norms_have_a_column_a_group(group, tmp_path):
    make_comparison(tmp_path / "other", recipe="cifar100-small")
    [other], _ = read_groups(tmp_path / "other")
    figure = norms([group, other])
    assert len(figure.axes) == 2 * 6
    found = texts(figure, tmp_path)
    assert "resnet8 on cifar10" in " ".join(found)
    assert "resnet8 on cifar100" in " ".join(found)
    assert {"sam", "vsam"} <= set(found)
    assert "sgd" not in found


def test_strips_show_which_steps_were_sampled(group):
    [image] = sample_strips(group).axes[0].images
    alpha = image.get_array()[:, :, 3]
    assert alpha.shape == (6, 12)
    assert (alpha[:3] == 1).all()
    assert alpha[3].tolist() == [float(step % 3 == 1) for step in range(1, 13)]


@pytest.mark.slow
def test_names_are_drawn_as_they_are(tmp_path):
    name = EVIL[-28:-5]
    rename(make_run(tmp_path / "run"), name)
    rename(make_run(tmp_path / "other", seed=1), "_日本")
    [group], _ = read_groups(tmp_path)
    for figure in (learning_curves(group), norms([group]), accuracy_against_speed(group.rows)):
        assert {name, "_日本"} <= set(texts(figure, tmp_path))
    assert f"{name}, seed 0" in texts(sample_strips(group), tmp_path)
