"""A process that torchrun has started joins the others only where it may."""

import pytest
import torch

from vsam.lab.errors import LostRankError, UserError
from vsam.lab.ranks import ALONE
from vsam.lab.ranks.join import _lost, choose_rank_device, join
from vsam.lab.torchrun import check_command, is_quiet


@pytest.fixture
def started(monkeypatch):
    """As the second of two processes on this machine."""
    values = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_other_commands_are_refused(started):
    check_command("train")
    with pytest.raises(UserError, match=r"torchrun is for vsam train: .* vsam compare .*--ray"):
        check_command("compare")


def test_one_process_on_a_machine_speaks(started, monkeypatch):
    assert is_quiet()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert not is_quiet()


def test_without_torchrun_nothing_changes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")  # somebody else's
    check_command("compare")
    assert not is_quiet()
    with join(torch.device("cpu")) as ranks:
        assert ranks is ALONE


def test_each_process_takes_its_own_gpu(started, monkeypatch):
    monkeypatch.setattr("vsam.lab.ranks.join.choose_device", lambda name: torch.device(name or "cuda"))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    chosen = []
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    assert choose_rank_device(None) == torch.device("cuda", 1)
    assert chosen == [torch.device("cuda", 1)]
    with pytest.raises(UserError, match=r"--device cuda:0 is one GPU for all processes"):
        choose_rank_device("cuda:0")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(UserError, match=r"has 1 GPUs, but more processes. Start torchrun with --nproc-per-node 1"):
        choose_rank_device(None)


def test_where_there_is_no_gpu_it_is_the_cpu(started, monkeypatch):
    monkeypatch.setattr("vsam.lab.ranks.join.choose_device", lambda name: torch.device(name or "mps"))
    assert choose_rank_device(None) == torch.device("cpu")
    assert choose_rank_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match=r"not on mps. Give --device cpu"):
        choose_rank_device("mps")


def test_a_lost_process_is_told_from_other_errors(started):
    with (
        pytest.raises(LostRankError, match=r"Process 1 of 2 lost contact .* Rerun the same command to resume"),
        _lost(),
    ):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:59011")
    with pytest.raises(RuntimeError, match=r"^mat1 and mat2$"), _lost():
        raise RuntimeError("mat1 and mat2")
