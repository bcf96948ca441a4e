"""One finished run of each kind, made once, for all tests that only read it."""

import shutil
from pathlib import Path

import pytest

from lab.command import QUICK, vsam
from lab.helpers import open_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished run of a method below its name."""
    folder = tmp_path_factory.mktemp("finished")
    for method in ("sgd", "sam", "vsam"):
        command = vsam("train", *QUICK, "--set", f"method={method}", "--out", method, folder=folder)
        assert command.code == 0, command.stderr
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished vSAM run, to be spoilt."""
    return Path(shutil.copytree(finished / "vsam", tmp_path / "run"))


@pytest.fixture(scope="session")
def _half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("half") / "run"
    run = open_run(path)
    run.train_epoch()
    run.close()
    return path


@pytest.fixture
def begun(_half: Path, tmp_path: Path) -> Path:
    """A copy of a vSAM run of which one epoch of two is trained."""
    return Path(shutil.copytree(_half, tmp_path / "begun"))
