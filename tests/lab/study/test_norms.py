"""The norms over training: means over equal stretches, gaps where nothing was sampled."""

import json

import pytest

from vsam.lab.errors import UserError
from vsam.lab.runs.finished import FinishedRun
from vsam.lab.study.norms import STRETCHES, norms_of


def cell(folder, steps, lines):
    folder.mkdir(exist_ok=True)
    (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return FinishedRun("sam", "sam", 0, folder, {"steps": steps, "samples": len(lines)}, [])


def line(step, grad=1.0, psf=2.0, change=None):
    return {"step": step, "grad_norm": grad, "psf_norm": psf, "change_var": change, "change_norm": change}


def test_stretches_are_averaged(tmp_path):
    lines = [line(step, psf=float(step)) for step in range(1, 4 * STRETCHES + 1)]
    found = norms_of([cell(tmp_path, 4 * STRETCHES, lines)])
    assert found["psf_norms"][0] == [2.5 + 4 * i for i in range(STRETCHES)]
    assert found["grad_norms"] == [[1.0] * STRETCHES]
    assert found["rates"] == [[1.0] * STRETCHES]
    assert found["changes_var"] == [[None] * STRETCHES]


def test_a_stretch_without_a_sample_is_a_gap(tmp_path):
    found = norms_of([cell(tmp_path, 2 * STRETCHES, [line(2 * STRETCHES, change=0.5)])])
    assert found["psf_norms"][0] == [None] * (STRETCHES - 1) + [2.0]
    assert found["changes_norm"][0][-1] == 0.5
    assert found["rates"][0] == [0.0] * (STRETCHES - 1) + [0.5]


@pytest.mark.parametrize("steps", [5, STRETCHES + 1, 1000])
def test_rates_add_up_to_the_samples_whatever_the_length(tmp_path, steps):
    found = norms_of([cell(tmp_path, steps, [line(step) for step in range(1, steps + 1)])])
    assert found["rates"][0] == pytest.approx([1.0] * min(steps, STRETCHES))


def test_seeds_stay_apart_and_what_is_not_finite_is_left_out(tmp_path):
    first = cell(tmp_path / "a", 1, [line(1, psf=3.0)])
    second = cell(tmp_path / "b", 1, [line(1, psf=float("inf"))])
    assert norms_of([first, second])["psf_norms"] == [[3.0], [None]]


@pytest.mark.parametrize("text", ["", "[1]\n", '{"step": 9, "psf_norm": 1.0}\n', '{"step": 1, "psf_no'])
def test_damaged_steps_are_refused_and_never_taken_for_few_samples(tmp_path, text):
    damaged = cell(tmp_path, 8, [line(1)])
    (tmp_path / "steps.jsonl").write_text(text)
    with pytest.raises(UserError, match=r"steps.jsonl is damaged: it has \d usable lines for 1 sampled steps"):
        norms_of([damaged])
