"""Runs as Ray tasks: the same folders and the same numbers as in one process, and a killed worker is replaced."""

import os
import signal
import threading
import time
from contextlib import closing

import pytest
import torch

from lab.helpers import CPU, assert_same_run, lines, open_run, quick_recipe
from vsam.lab.compare import compare
from vsam.lab.errors import UserError
from vsam.lab.plugins import use
from vsam.lab.progress import NullProgress
from vsam.lab.ray import choose_ray_device, trainer
from vsam.lab.run import read_run, run_path

SMALL = ("data.train=32", "epochs=2")

HELD = '''
import time
from pathlib import Path

from torch.optim import SGD

from vsam.lab import method


class Held(SGD):
    """Stochastic gradient descent that waits in the second epoch until a worker was killed."""

    num_steps = 0

    def step(self, closure):
        self.num_steps += 1
        while self.num_steps == 8 and not Path(__file__).with_name("killed").exists():
            time.sleep(0.01)
        return super().step(closure)


@method("held")
def held(model):
    return Held(model.parameters(), lr=0.1, momentum=0.9)
'''


def cluster(test):
    """Run a test on a real Ray on this machine."""
    for message in ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"):
        test = pytest.mark.filterwarnings(message)(test)
    return pytest.mark.slow(test)


def test_without_an_address_runs_are_trained_here():
    with trainer(None) as train:
        assert train is None


def test_a_cluster_may_have_gpus_that_this_machine_lacks():
    assert choose_ray_device("cuda", "head:6379").type == "cuda"
    assert choose_ray_device("cpu", "head:6379").type == "cpu"


@pytest.fixture(scope="module")
def train():
    pytest.importorskip("ray", reason="Ray is not installed")
    with trainer("local") as train:
        yield train


@cluster
def test_the_same_runs_as_in_one_process_and_a_failed_one_is_named(train, tmp_path):
    recipes = [quick_recipe(*SMALL, f"method={method}") for method in ("sgd", "vsam")]
    compare(recipes, tmp_path / "here", None, CPU)
    bad = quick_recipe(*SMALL, "method=sam", "lr=1e30")
    done, failures = compare([*recipes, bad], tmp_path / "there", None, CPU, train=train)
    assert [run.label for run in done] == ["sgd", "vsam"]
    assert len(failures) == 1
    assert failures[0].startswith("sam, seed 0: The loss is nan")
    for recipe in recipes:
        assert_same_run(run_path(tmp_path / "there", recipe), run_path(tmp_path / "here", recipe))
    assert done[0].summary["environment"]["threads"] == torch.get_num_threads()


@cluster
def test_a_worker_that_is_killed_is_replaced_and_its_run_resumes(train, tmp_path):
    (tmp_path / "own.py").write_text(HELD)
    use(tmp_path / "own.py")
    recipes = [quick_recipe("method=held", f"seed={seed}") for seed in (0, 1)]
    kill = threading.Thread(target=_kill_worker, args=(run_path(tmp_path, recipes[0]), tmp_path / "killed"))
    kill.start()
    done, failures = compare(recipes, tmp_path, None, CPU, NullProgress(), train=train)
    kill.join()
    assert (len(done), failures) == (2, [])
    with closing(open_run(tmp_path / "alone", "method=held")) as run:
        while not run.is_finished:
            run.train_epoch()
    assert_same_run(done[0].path, tmp_path / "alone")


def _kill_worker(path, killed):
    """Kill the process that holds the run's lock, once it has trained an epoch."""
    try:
        end = time.monotonic() + 300
        while not lines(path / "metrics.jsonl") and time.monotonic() < end:
            time.sleep(0.01)
        inode = (path / ".lock").stat().st_ino
        locks = [line.split() for line in open("/proc/locks") if f":{inode} " in line]  # noqa: SIM115
        assert locks
        assert not read_run(path).is_finished
        os.kill(int(locks[0][4]), signal.SIGKILL)
    finally:
        killed.touch()


@cluster
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:many", "127.0.0.1:99999"])
def test_a_cluster_that_does_not_answer_is_an_error(address):
    with pytest.raises(UserError, match=f"Ray cannot be reached at '{address}'"):
        trainer(address).__enter__()
