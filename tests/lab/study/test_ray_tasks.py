"""Runs as Ray tasks: the same folders and the same numbers as in one process."""

import pytest
import torch

from lab.helpers import CPU, assert_same_run, quick_recipe
from vsam.lab.comparison.compare import compare
from vsam.lab.comparison.progress import NullProgress
from vsam.lab.errors import UserError
from vsam.lab.runs.folder import run_path
from vsam.lab.runs.store import RunStore
from vsam.lab.study.ray_tasks import _sharing, ray_trainer

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SMALL = ("data.train=32", "epochs=2")


@pytest.fixture(scope="module")
def train():
    with ray_trainer("local") as trainer:
        yield trainer


def test_the_same_runs_as_in_one_process(train, tmp_path):
    recipes = [quick_recipe(*SMALL, f"method={method}") for method in ("sgd", "vsam")]
    compare(recipes, tmp_path / "here", None, CPU)
    assert train(recipes, RunStore(tmp_path / "there"), None, CPU, NullProgress()) == []
    for recipe in recipes:
        assert_same_run(run_path(tmp_path / "there", recipe), run_path(tmp_path / "here", recipe))


def test_a_task_that_fails_is_named_and_finished_ones_are_kept(train, tmp_path):
    good, bad = quick_recipe(*SMALL, "method=sgd"), quick_recipe(*SMALL, "method=sam", "lr=1e30")
    assert train([good], RunStore(tmp_path), None, CPU, NullProgress()) == []
    before = (run_path(tmp_path, good) / "summary.json").stat().st_mtime_ns
    (failure,) = train([good, bad], RunStore(tmp_path), None, CPU, NullProgress())
    assert failure.startswith("sam, seed 0: The loss is nan")
    assert (run_path(tmp_path, good) / "summary.json").stat().st_mtime_ns == before


def test_other_settings_are_refused_before_anything_is_trained(train, tmp_path):
    recipe = quick_recipe(*SMALL, "method=sgd")
    assert train([recipe], RunStore(tmp_path), None, CPU, NullProgress()) == []
    with pytest.raises(UserError, match="other settings"):
        train([recipe.model_copy(update={"lr": 0.5})], RunStore(tmp_path), None, CPU, NullProgress())


def test_workers_compute_with_as_many_threads_as_this_process(train, tmp_path):
    recipe = quick_recipe(*SMALL, "method=sgd")
    assert train([recipe], RunStore(tmp_path), None, CPU, NullProgress()) == []
    summary = (run_path(tmp_path, recipe) / "summary.json").read_text()
    assert f'"threads": {torch.get_num_threads()}' in summary


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:many", "127.0.0.1:99999"])
def test_a_cluster_that_does_not_answer_is_an_error(address):
    with pytest.raises(UserError, match=f"Ray cannot be reached at '{address}'"):
        ray_trainer(address).__enter__()


def test_it_says_how_cores_and_gpus_are_shared_out():
    cluster = {"CPU": 32.0, "GPU": 4.0}
    assert _sharing(216, 2, 1, cluster) == (
        "Ray: 216 runs, each with 2 cores and its own GPU; Ray has 32 cores and 4 GPUs: 4 at a time."
    )
    assert _sharing(9, 8, 0, cluster).endswith(": 4 at a time. Give --device cuda to train on the GPUs.")
    assert _sharing(1, 1, 0, {"CPU": 2.0}).endswith("1 core and no GPU; Ray has 2 cores and 0 GPUs: 1 at a time.")
    with pytest.raises(UserError, match="Ray has no GPU"):
        _sharing(9, 1, 1, {"CPU": 2.0})
    # Runs with several workers, which have a GPU each.
    assert _sharing(9, 8, 4, cluster).startswith("Ray: 9 runs, each with 8 cores and its own 4 GPUs;")
    with pytest.raises(UserError, match=r"Each run needs 99 cores for its workers, but Ray has .* fewer --workers"):
        _sharing(9, 99, 4, cluster)
    with pytest.raises(UserError, match=r"Each run needs 99 GPUs for its workers, but Ray has .* fewer --workers"):
        _sharing(9, 8, 99, cluster)
