"""Pictures of sharpness: every figure, a page that asks nothing of the network, and all numbers."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from lab.flatness.made import estimate, made_plane, made_row, made_slices
from vsam.lab.flatness.figures import levels
from vsam.lab.flatness.page import make_page
from vsam.lab.flatness.texts import cell, names_of
from vsam.lab.flatness.write import write_pictures
from vsam.lab.report.style import styles_for

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    rows = {"sgd": made_row("sgd", top=9.0, converged=False), "sam": made_row("sam")}
    out = tmp_path_factory.mktemp("pictures") / "pics"
    return write_pictures(rows, made_slices(list(rows)), out), out


def specs(page):
    text = re.search(r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL)[1]
    return [chart["spec"] for chart in json.loads(text)["charts"]]


def test_each_figure_is_there_as_svg_and_png(written):
    files, out = written
    names = {path.stem for path in out.glob("*.svg")}
    assert names == {
        *("sharpness-bars", "sharpness-density", "landscape-lines", "landscape-between"),
        *("landscape-contours", "landscape-surfaces"),
    }
    assert names == {path.stem for path in out.glob("*.png")}
    assert set(files) == {path for path in out.iterdir() if path.is_file()}


def test_the_page_has_the_numbers_and_asks_nothing_of_the_network(written):
    page = (written[1] / "sharpness.html").read_text()
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    kinds = [spec["kind"] for spec in specs(page)]
    assert kinds == ["bars"] * 6 + ["curves"] * 2 + ["contour"] * 2 + ["surface"] * 2 + ["curves"]
    top = specs(page)[0]["series"]
    assert [(one["name"], one["value"], one["error"], one["converged"]) for one in top] == [
        ("sgd", 9, 0.5, False),
        ("sam", 3, 0.5, True),
    ]
    assert '<td class="loose">9 ± 0.5*</td>' in page
    assert "<td>3 ± 0.5</td>" in page


def test_runs_share_the_axes_and_the_levels(written):
    first, second = (spec for spec in specs((written[1] / "sharpness.html").read_text()) if spec["kind"] == "contour")
    assert (first["axis"], first["levels"]) == (second["axis"], second["levels"])
    assert first["losses"] != second["losses"]
    planes = {"a": made_plane(), "b": made_plane(2.0)}
    assert levels(planes)[0] == pytest.approx(0.1)
    assert levels(planes)[-1] == pytest.approx(0.1 + 2 * 3)


def test_the_numbers_are_json_also_where_they_are_not_finite(tmp_path):
    row = made_row("sam", worst=estimate(1.0, converged=False, error=float("inf")))
    slices = made_slices(["sam"])
    slices.planes["sam"].losses[0, 0] = float("nan")
    slices.lines["sam"].losses[0] = float("inf")
    write_pictures({"sam": row}, slices, tmp_path)
    content = json.loads((tmp_path / "sharpness.json").read_text())
    assert content["runs"]["sam"]["worst"]["error"] is None
    assert content["landscape"]["planes"]["sam"]["losses"][0][0] is None
    assert content["landscape"]["lines"]["sam"]["axis"] == pytest.approx(torch.linspace(-1, 1, 7).tolist(), abs=1e-6)
    contour = next(spec for spec in specs((tmp_path / "sharpness.html").read_text()) if spec["kind"] == "contour")
    assert contour["losses"][0][0] is None
    curve = next(spec for spec in specs((tmp_path / "sharpness.html").read_text()) if spec["y"] == "loss, nats")
    assert curve["series"][0]["x"][0] == pytest.approx(-2 / 3, abs=1e-4)  # no point where the loss is infinite


def test_names_cannot_become_markup():
    found = {EVIL: made_row().found}
    page = make_page(found, {EVIL: made_row().path}, styles_for([EVIL]), made_slices([EVIL]))
    assert EVIL not in page
    assert "&lt;script&gt;alert(1)" in page


def test_what_was_not_measured_is_not_drawn(tmp_path):
    found = replace(made_row().found, worst=None, density=None)
    row = replace(made_row(), found=found)
    files = write_pictures({"sam": row}, None, tmp_path)
    assert {path.name for path in files} == {
        *("sharpness.html", "sharpness.json", "sharpness-bars.svg", "sharpness-bars.png"),
    }
    assert "Worst in the ball" not in (tmp_path / "sharpness.html").read_text()
    assert cell(None) == "–"


def test_names_tell_runs_apart():
    def opened(label, seed, recipe="r", folder="f"):
        path = SimpleNamespace(parent=folder)
        return SimpleNamespace(recipe=SimpleNamespace(label=label, seed=seed, name=recipe), path=path)

    assert names_of([opened("sam", 0), opened("sgd", 0)]) == ["sam", "sgd"]
    assert names_of([opened("sam", 0), opened("sam", 1)]) == ["sam, seed 0", "sam, seed 1"]
    assert names_of([opened("sam", 0), opened("sam", 0, "q")]) == ["r: sam, seed 0", "q: sam, seed 0"]
    assert names_of([opened("sam", 0, folder="a"), opened("sam", 0, folder="b")]) == ["a", "b"]
