"""Runs on several workers of Ray Train: the files of one run, the losses of one process, and failures by name."""

import json

import pytest

from lab.helpers import CPU, lines, quick_recipe
from vsam.lab.comparison.compare import compare
from vsam.lab.comparison.progress import NullProgress
from vsam.lab.runs.folder import run_path
from vsam.lab.runs.store import RunStore
from vsam.lab.study.ray_tasks import ray_trainer

pytest.importorskip("pyarrow", reason="Ray Train is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_each_run_has_two_workers(tmp_path):
    small = ("data.train=32", "epochs=1")
    good, bad = quick_recipe(*small, "method=sam", "lr=0.01"), quick_recipe(*small, "method=sgd", "lr=1e30")
    with ray_trainer("local", workers=2) as train:
        (failure,) = train([good, bad], RunStore(tmp_path / "two"), None, CPU, NullProgress(), lambda run: None)
    assert failure.startswith("sgd, seed 0: The loss is")
    compare([good], tmp_path / "one", None, CPU)
    two, one = (run_path(tmp_path / name, good) for name in ("two", "one"))
    assert json.loads((two / "summary.json").read_text())["ranks"] == 2
    losses = [[line["loss"] for line in lines(path / "steps.jsonl")] for path in (two, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert not list((tmp_path / "two").glob(".ray-*"))
