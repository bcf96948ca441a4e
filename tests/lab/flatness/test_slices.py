"""Slices of runs: on common axes, kept, and between two runs."""

from dataclasses import replace

import pytest
import torch

from vsam.lab.errors import UserError
from vsam.lab.flatness.slices import cut
from vsam.lab.runs.flatness import open_trained

OPTIONS = {"num_points": 3, "span": 0.5, "mode": "eval", "is_between": True}


def opened(finished, name):
    return open_trained(finished / name / "checkpoint.pt", 16, 16, None, "cpu")


def test_a_second_time_everything_is_read(finished, tmp_path, monkeypatch):
    runs = {name: opened(finished, name) for name in ("sgd", "sam")}
    said = []
    first = cut(runs, tmp_path, say=said.append, **OPTIONS)
    assert first.planes["sam"].losses.shape == (3, 3)
    assert first.lines["sgd"].axes[0].tolist() == [-0.5, -0.25, 0, 0.25, 0.5]
    assert first.lines["sgd"].losses[2] == pytest.approx(first.planes["sgd"].losses[1, 1].item())
    assert "sam: plane: point 9 of 9" in said
    monkeypatch.setattr("vsam.sharpness.objective.Objective.value", None)
    again = cut(runs, tmp_path, say=said.append, **OPTIONS)
    assert torch.equal(again.planes["sam"].losses, first.planes["sam"].losses)
    assert torch.equal(again.between["sam"].losses, first.between["sam"].losses)


def test_the_line_between_runs_meets_both(finished, tmp_path):
    runs = {name: opened(finished, name) for name in ("sgd", "sam")}
    line = cut(runs, tmp_path, say=lambda text: None, **OPTIONS | {"num_points": 7}).between["sam"]
    at = dict(zip([round(x, 6) for x in line.axes[0].tolist()], line.losses.tolist(), strict=True))
    assert at[0.0] == pytest.approx(runs["sgd"].measure(what="ascent").found.loss, rel=1e-5)
    assert at[1.0] == pytest.approx(runs["sam"].measure(what="ascent").found.loss, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"num_points": 4}, "odd number"), ({"num_points": 1}, "odd number"), ({"span": 0.0}, "--span must be positive")],
)
def test_what_cannot_be_cut_is_explained(finished, tmp_path, changes, said):
    with pytest.raises(UserError, match=said):
        cut({"sam": opened(finished, "sam")}, tmp_path, say=print, **OPTIONS | {"is_between": False} | changes)


def test_lines_between_what_has_none_are_explained(finished, tmp_path):
    with pytest.raises(UserError, match="needs at least two runs"):
        cut({"sam": opened(finished, "sam")}, tmp_path, say=print, **OPTIONS)
    one, other = opened(finished, "sam"), opened(finished, "sgd")
    noisy = other.recipe.data.model_copy(update={"noise": 0.5})
    for change, said in (({"model": "resnet20"}, "runs of the same network"), ({"data": noisy}, "the same images")):
        different = replace(other, recipe=other.recipe.model_copy(update=change))
        with pytest.raises(UserError, match=said):
            cut({"sam": one, "sgd": different}, tmp_path, say=print, **OPTIONS)
