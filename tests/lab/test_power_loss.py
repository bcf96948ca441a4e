"""A run survives a power loss at any moment: of every file only what was synced is left."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from lab.helpers import assert_same_run, open_run
from vsam.lab.errors import DamagedError


class PowerLoss(BaseException):
    """The machine is off."""


class Disk:
    """Track which part of each file is on disk, and cut the power before a sync or rename.

    Args:
        monkeypatch: pytest's.
        moment: the number of the call before which the power is lost, counted from 1; None for never.
    """

    def __init__(self, monkeypatch, moment=None):
        self.num_calls, self._moment = 0, moment
        self._synced, self._renamed = {}, {}
        sync, replace = os.fsync, Path.replace

        def fsync(descriptor):
            self._tick()
            sync(descriptor)
            status = os.fstat(descriptor)
            self._synced[status.st_ino] = status.st_size
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                self._renamed.clear()

        def renamed(path, target):
            self._tick()
            self._renamed.setdefault(Path(target), Path(target).read_bytes() if Path(target).exists() else None)
            return replace(path, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(Path, "replace", renamed)

    def _tick(self):
        self.num_calls += 1
        if self.num_calls == self._moment:
            raise PowerLoss

    def lose(self, folder):
        """Undo renames whose folder was not synced, and cut files back to what was synced of them."""
        for path, content in self._renamed.items():
            path.unlink()
            if content is not None:
                path.write_bytes(content)
                self._synced[path.stat().st_ino] = len(content)
        for path in folder.iterdir():
            os.truncate(path, min(path.stat().st_size, self._synced.get(path.stat().st_ino, 0)))


def train(path):
    with closing(open_run(path)) as run:
        while not run.is_finished:
            run.train_epoch()


def count_calls(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        disk = Disk(patch)
        train(tmp_path / "count")
    return disk.num_calls


def test_a_power_loss_at_any_moment_loses_nothing_that_a_checkpoint_had(finished, tmp_path, monkeypatch):
    total = count_calls(tmp_path, monkeypatch)
    moments = sorted({1 + round(i * (total - 1) / 13) for i in range(14)})
    assert len(moments) == 14
    for moment in moments:
        path = tmp_path / str(moment)
        with monkeypatch.context() as patch:
            disk = Disk(patch, moment)
            with pytest.raises(PowerLoss):
                train(path)
        disk.lose(path)
        train(path)
        assert_same_run(path, finished / "vsam")


@pytest.mark.parametrize("share", [0, 0.5, None])
def test_steps_that_are_missing_all_the_same_are_noticed(begun, share):
    content = (begun / "steps.jsonl").read_bytes()
    if share is None:
        (begun / "steps.jsonl").unlink()
    else:
        (begun / "steps.jsonl").write_bytes(content[: int(share * len(content))])
    with pytest.raises(DamagedError, match=rf"steps.jsonl has only [\d,]+ of the {len(content):,} bytes"):
        open_run(begun)
