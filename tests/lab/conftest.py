"""One finished run of each kind, made once for all tests that only read it. Tests that start processes are slow."""

import multiprocessing
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from lab import command
from lab.helpers import open_run


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark what runs the command in processes of its own, by itself or by a fixture: `make quick` leaves it out."""
    for item in items:
        fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009 - private
        functions = [item.function, *(one.func for definitions in fixtures for one in definitions)]
        if any(_starts_processes(function) for function in functions):
            item.add_marker(pytest.mark.slow)


@cache  # tests of a file share helpers and fixtures, and cases of a test everything
def _starts_processes(function: Callable[..., Any]) -> bool:
    function = getattr(function, "hypothesis", function)
    code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    used = [names[name] for name in (code.co_names if code else ()) if name in names]
    starters = [command.vsam, command.Command, subprocess, multiprocessing]
    helpers = [one for one in used if isinstance(one, FunctionType) and one is not function]
    return any(one is starter for one in used for starter in starters) or any(
        _starts_processes(one) for one in helpers if one.__module__ == function.__module__
    )


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished run of a method below its name."""
    folder = tmp_path_factory.mktemp("finished")
    for method in ("sgd", "sam", "vsam"):
        with closing(open_run(folder / method, f"method={method}")) as run:
            while not run.is_finished:
                run.train_epoch()
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished vSAM run, to be spoilt."""
    return Path(shutil.copytree(finished / "vsam", tmp_path / "run"))


@pytest.fixture(scope="session")
def _half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("half") / "run"
    with closing(open_run(path)) as run:
        run.train_epoch()
    return path


@pytest.fixture
def begun(_half: Path, tmp_path: Path) -> Path:
    """A copy of a vSAM run of which one epoch of two is trained."""
    return Path(shutil.copytree(_half, tmp_path / "begun"))
