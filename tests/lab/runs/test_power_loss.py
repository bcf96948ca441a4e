"""A run survives a power loss: of every file only what was synced is left, and whatever is missing is said."""

import os
import shutil
from contextlib import closing

import pytest

from lab.command import QUICK, assert_refused, vsam
from lab.helpers import assert_same_run, lines, make_older, open_run
from vsam.lab.errors import DamagedError

LINE_FILES = ("metrics.jsonl", "steps.jsonl")


def lose_power(folder, synced):
    """Cut files back to what was synced of them; what is renamed into place was synced before."""
    for name in LINE_FILES:
        if (folder / name).exists():
            os.truncate(folder / name, synced.get(os.stat(folder / name).st_ino, 0))


@pytest.fixture
def synced(monkeypatch):
    """The size that each file had when it was last synced, by its inode."""
    sizes, sync = {}, os.fsync

    def note(descriptor):
        sync(descriptor)
        sizes[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", note)
    return sizes


def test_after_a_power_loss_nothing_is_missing(finished, tmp_path, synced):
    with closing(open_run(tmp_path / "run")) as run:
        run.train_epoch()
    lose_power(tmp_path / "run", synced)
    with closing(open_run(tmp_path / "run")) as run:
        assert run.step == 6
        while not run.is_finished:
            run.train_epoch()
    assert_same_run(tmp_path / "run", finished / "vsam")


@pytest.mark.parametrize("name", LINE_FILES)
@pytest.mark.parametrize("share", [0, 0.5, None])
def test_lines_that_are_missing_all_the_same_are_noticed(begun, name, share):
    content = (begun / name).read_bytes()
    assert content
    if share is None:
        (begun / name).unlink()
    else:
        (begun / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(DamagedError, match=rf"{name} has only [\d,]+ of the {len(content):,} bytes .* retrain the run"):
        open_run(begun)


def test_the_command_does_not_end_well_with_half_its_metrics(begun):
    (begun / "metrics.jsonl").write_text("")
    command = vsam("train", *QUICK, "--out", str(begun), folder=begun.parent)
    assert_refused(command, 1, "metrics.jsonl has only 0 of the", f"delete {begun} to retrain the run")


def test_a_changed_digit_is_noticed(begun):
    path = begun / "metrics.jsonl"
    path.write_text(path.read_text().replace('"epoch": 0', '"epoch": 1'))
    with pytest.raises(
        DamagedError, match=r"metrics.jsonl is damaged: its checksum does not match the one in checkpoint.pt"
    ):
        open_run(begun)


def test_a_run_that_an_older_version_began_goes_on_only_with_all_its_epochs(begun):
    make_older(begun)
    copy = shutil.copytree(begun, begun.parent / "copy")
    with closing(open_run(begun)) as run:
        run.train_epoch()
    assert len(lines(begun / "metrics.jsonl")) == 2
    (copy / "metrics.jsonl").write_text("")
    with pytest.raises(DamagedError, match=r"metrics.jsonl has 0 of 1 epochs"):
        open_run(copy)


def test_a_finished_run_with_damaged_metrics_says_so(run):
    path = run / "metrics.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:1]) + "\n")
    command = vsam("train", *QUICK, "--out", str(run), folder=run.parent)
    assert_refused(command, 1, "metrics.jsonl is damaged: it was changed after it was written.", f"Delete {run}")
    assert f"{run} is finished" in command.stdout
