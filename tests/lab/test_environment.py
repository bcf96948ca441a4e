"""Choosing a device, and what a result states about its origin."""

import json
import subprocess

import pytest
import torch

import vsam
from vsam.lab.environment import choose_device, commit_of, describe_environment
from vsam.lab.errors import UserError


def test_the_best_device_is_taken_unless_one_is_named():
    assert choose_device("cpu") == torch.device("cpu")
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device().type == best


@pytest.mark.parametrize("name", ["", "gpu", "cuda:99", "cpu cpu", "xpu:9", "hpu", "vulkan", "None", "cuda:-1", "meta"])
def test_a_device_that_does_not_exist_is_refused(name):
    with pytest.raises(UserError, match="--device"):
        choose_device(name)


def test_a_result_states_where_it_was_made():
    found = describe_environment(torch.device("cpu"))
    assert found["vsam"] == vsam.__version__
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert found["cores"] >= 1
    assert found["device"].startswith("CPU ")
    assert {"python", "numpy", "system", "commit"} <= found.keys()
    assert json.loads(json.dumps(found)) == found


@pytest.fixture
def tree(tmp_path):
    """A repository whose settings name programs that leave a mark, as another's may."""
    for name in ("monitor", "hook"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/{name}-ran\n")
        (tmp_path / name).chmod(0o755)
    tree = tmp_path / "tree"
    (tree / "hooks").mkdir(parents=True)
    (tree / "hooks" / "post-index-change").symlink_to(tmp_path / "hook")
    (tree / "pyproject.toml").write_text('[project]\nname = "vsam"\n')
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "pyproject.toml"], [*who, "commit", "-qm", "a"]):
        subprocess.run(["git", "-C", tree, *command], check=True)
    for setting in (("core.fsmonitor", tmp_path / "monitor"), ("core.hooksPath", tree / "hooks")):
        subprocess.run(["git", "-C", tree, "config", *setting], check=True)
    return tree


def test_the_commit_of_our_own_tree_is_told_and_nothing_else_is_run(tree, tmp_path, monkeypatch):
    (tree / "pyproject.toml").touch()
    commit = commit_of(tree)
    assert commit is not None
    assert len(commit) == 12
    (tree / "pyproject.toml").write_text('[project]\nname = "vsam" # changed\n')
    assert commit_of(tree) == f"{commit}-dirty"
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert commit_of(tree) == f"{commit}-dirty"
    assert not list(tmp_path.glob("*-ran"))


def test_a_repository_that_encloses_the_package_is_not_asked(tree, tmp_path):
    inner = tree / "lib" / "python3"
    inner.mkdir(parents=True)
    assert commit_of(inner) is None
    (inner / "pyproject.toml").write_text('[project]\nname = "vsam"\n')
    assert commit_of(inner) is None
    (tree / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert commit_of(tree) is None
    assert not list(tmp_path.glob("*-ran"))
