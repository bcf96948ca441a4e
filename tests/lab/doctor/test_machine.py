"""The machine: what is there, and what is wrong with it."""

import torch

import vsam
from vsam.lab.data.cifar import CIFAR10
from vsam.lab.doctor import check_machine
from vsam.lab.doctor.machine import _threads


def test_versions_device_threads_and_data_are_told(tmp_path):
    said = {one.subject: one for one in check_machine(tmp_path)}
    assert list(said) == ["versions", "extras", "device", "threads", "data"]
    assert f"vsam {vsam.__version__}, torch {torch.__version__}" in said["versions"].text
    assert "found fashion-mini; not here yet" in said["data"].text
    assert not [one for one in said.values() if one.level == "problem"]


def test_damaged_data_is_a_problem(tmp_path):
    (tmp_path / CIFAR10.source.folder).mkdir()
    (damage,) = (one for one in check_machine(tmp_path) if one.level == "problem")
    assert damage.subject == "data"
    assert damage.text.startswith("cifar10 is damaged.")


def test_more_threads_than_cores_are_a_problem(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10_000)
    assert _threads().level == "problem"
    assert "OMP_NUM_THREADS=" in _threads().text
