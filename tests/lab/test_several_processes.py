"""One run on several processes: the losses of one process, files from the first of them, resumed with any number."""

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing

import pytest
import torch

from lab.command import QUICK, Command, vsam
from lab.helpers import CPU, lines, quick_recipe
from lab.ranks.launch import on_ranks
from vsam.lab.methods import METHODS
from vsam.lab.plugins import use
from vsam.lab.train import Trainer, load_data

pytestmark = pytest.mark.slow

# Batches of 17, 17 and 1: parts of different sizes, and in the last one process has no image.
SHAPE = ("data.train=35", "data.test=11", "batch=17")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "vsam")

OWN = '''
import os
import signal
import threading
from pathlib import Path

from torch import nn
from torch.optim import SGD

from vsam.lab import method, model
from vsam.lab.models import build

FAULT, _, AT = os.environ.get("FAULT", "").partition(" at ")


class Faulty(SGD):
    """Stochastic gradient descent that is once killed, or has torchrun ended, in its AT-th step."""

    num_steps = 0

    def step(self, closure):
        Faulty.num_steps += 1
        if FAULT and Faulty.num_steps == int(AT) and os.environ.get("RANK") != "0":
            if FAULT == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            arrived, handle = threading.Event(), signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *arguments: (handle(*arguments), arrived.set()))
            os.kill(os.getppid(), signal.SIGTERM)
            assert arrived.wait(60)
        return super().step(closure)


@method("faulty")
def faulty(model):
    return Faulty(model.parameters(), lr=0.1, momentum=0.9)


class Double(nn.Module):
    """A network in double precision, so that rounding stays small however long it is trained."""

    def __init__(self, network):
        super().__init__()
        self.network = network.double()

    def forward(self, images):
        return self.network(images.double())


@model("double")
def double(num_classes, in_channels):
    return Double(build("resnet8", num_classes, in_channels))
'''
ARGUMENTS = ("train", *QUICK, "--use", "own.py", "--set", "method=faulty", "--set", "model=double", "--out", "run")


def _finish(run):
    with closing(run):
        while not run.is_finished:
            run.train_epoch()
    left = [one for one in gc.get_objects() if isinstance(one, torch.nn.parallel.DistributedDataParallel)]
    assert not left, "a closed run still holds its group of processes"


def _train(ranks, folder, changes):
    use(folder / "own.py")
    for name, own in changes.items():
        recipe = quick_recipe(*SHAPE, *own)
        path = folder / str(ranks.size) / name
        _finish(Trainer(recipe, path, load_data(recipe, None, CPU), CPU, ranks))
    return {}


def assert_close(run, reference, tolerance=1e-6):
    """The same decisions, and the same losses and weights to rounding."""
    for name in ("metrics.jsonl", "steps.jsonl"):
        ours, theirs = lines(run / name), lines(reference / name)
        assert [line["step"] for line in ours] == [line["step"] for line in theirs], name
        for key in ("loss", "train_loss", "test_loss", "grad_norm", "psf_norm"):
            found = [[line[key] for line in each if line.get(key) is not None] for each in (ours, theirs)]
            assert found[0] == pytest.approx(found[1], rel=tolerance), f"{name} {key}"
    contents = [torch.load(path / "checkpoint.pt", weights_only=True) for path in (run, reference)]
    for part in ("model", "objective"):
        first, second = (torch.utils._pytree.tree_leaves(content[part]) for content in contents)
        for one, other in zip(first, second, strict=True):
            assert torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance)


def test_every_method_has_the_same_losses_on_one_and_on_two_processes(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    changes = {method.name: (f"method={method.name}", "model=double") for method in METHODS if method.name != "sam-10"}
    changes["quantized"] = ("method=vsam", "model=double", "quantize.checkpoint=none", "quantize.weight_bits=4")
    changes["bf16"] = ("method=sgd", "bf16=true", "epochs=1", "lr=0.01")
    for size in (1, 2):
        on_ranks(size, _train, tmp_path, tmp_path, changes)
    for name in changes:
        assert_close(tmp_path / "2" / name, tmp_path / "1" / name, 5e-2 if name == "bf16" else 1e-6)
        summaries = [json.loads((tmp_path / size / name / "summary.json").read_text()) for size in "12"]
        assert [summary["ranks"] for summary in summaries] == [1, 2]
        assert summaries[1]["ais"] == pytest.approx(35 * summaries[1]["epochs"] / summaries[1]["seconds"])


def _ranks_command(arguments, folder, port):
    """The command in two processes, as torchrun starts them, but with the imports behind them."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    names = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    commands = [Command(arguments, folder, environment=shared | name).start() for name in names]
    return [command.wait() for command in commands]


def test_the_first_process_alone_speaks_and_writes(tmp_path):
    arguments = ("train", *QUICK, "--set", "method=saf", "--out", "run")
    first, second = _ranks_command(arguments, tmp_path, _free_port())
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert "saf reached" in first.stdout
    assert "images/s on 2 processes." in first.stdout
    assert first.stderr.count("epoch ") == 2
    assert (second.stdout, second.stderr) == ("", "")
    assert len(lines(tmp_path / "run/metrics.jsonl")) == 2
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("*.*")}
    first, second = _ranks_command(arguments, tmp_path, _free_port())
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert "run is finished: saf reached" in first.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before
    first, second = _ranks_command((*arguments, "--set", "lr=0.5"), tmp_path, _free_port())
    assert (first.code, second.code) == (2, 2)
    assert "other settings (lr" in first.stderr
    assert second.stderr == ""


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The run of the user's method in one process, undisturbed."""
    folder = tmp_path_factory.mktemp("reference")
    (folder / "own.py").write_text(OWN)
    assert vsam(*ARGUMENTS, folder=folder).code == 0
    return folder


def _torchrun(folder, fault=""):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "FAULT": fault}
    return subprocess.run(
        (*TORCHRUN, *ARGUMENTS), cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def test_a_process_that_dies_ends_the_job_and_the_run_resumes(reference, tmp_path):
    shutil.copy(reference / "own.py", tmp_path)
    command = _torchrun(tmp_path, "die at 9")
    assert command.returncode != 0
    assert "lost contact with another one" in command.stderr
    assert "Rerun the same command to resume" in command.stderr
    assert "Signal 9 (SIGKILL)" in command.stderr
    assert [line["step"] for line in lines(tmp_path / "run/metrics.jsonl")] == [6]
    command = _torchrun(tmp_path)
    assert command.returncode == 0, command.stderr
    assert "Resuming at step 6 of 12." in command.stderr
    assert_close(tmp_path / "run", reference / "run")


def test_begun_on_one_process_ended_by_a_signal_on_two_and_finished_on_one(reference, tmp_path):
    shutil.copy(reference / "own.py", tmp_path)
    assert vsam(*ARGUMENTS, folder=tmp_path, environment={"FAULT": "die at 9"}).code == -9
    command = _torchrun(tmp_path, "stop at 3")
    assert command.returncode != 0
    assert "Resuming at step 6 of 12." in command.stderr
    assert command.stderr.count("Error: Interrupted. Rerun the same command") == 1
    assert torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)["step"] == 9
    last = vsam(*ARGUMENTS, folder=tmp_path)
    assert last.code == 0, last.stderr
    assert "Resuming at step 9 of 12." in last.stderr
    assert [line["ranks"] for line in lines(tmp_path / "run/metrics.jsonl")] == [1, 1]
    assert_close(tmp_path / "run", reference / "run")
