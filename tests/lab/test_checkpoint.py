"""Checkpoints are read without executing anything, and refused unless they are ours."""

import io
import os
import pickle
import re
import zipfile
from pathlib import Path

import pytest
import torch

from lab.command import QUICK, assert_refused, vsam
from lab.helpers import assert_same, open_run
from vsam.lab.checkpoint import load_checkpoint, save_checkpoint
from vsam.lab.errors import DamagedError, RunError


class Touch:
    """Creates a file when it is unpickled without care."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def zipped(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def assert_in_our_words(message):
    """Torch's own advise to load it without protection, point to its documentation, or are a mere number."""
    assert not re.search(r"weights_only|torch\.load|https?:|vsam: \d+\.", message)
    assert len(message.strip().splitlines()) == 1


def test_what_is_saved_is_loaded(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {"model": {"weight": torch.arange(3.0)}, "step": 4})
    content = load_checkpoint(path)
    assert content["step"] == 4
    assert content["model"]["weight"].tolist() == [0, 1, 2]
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_the_bait_works(tmp_path):
    """Otherwise the tests below could not fail."""
    pickle.loads(pickle.dumps(Touch(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    "make",
    [
        pickle.dumps,
        zipped,
        lambda bait: zipped({"format": "vsam-run", "version": 3, "model": bait}),
        lambda bait: pickle.dumps({"format": "vsam-run", "version": 3, "step": bait}, protocol=2),
    ],
    ids=["pickle", "zip", "zip of ours", "pickle of ours"],
)
def test_a_malicious_pickle_is_never_executed(run, make):
    (run / "summary.json").unlink()
    marker = run.parent / "marker"
    (run / "checkpoint.pt").write_bytes(make(Touch(marker)))
    command = vsam("train", *QUICK, "--out", str(run), folder=run.parent)
    assert_refused(command, 1, str(run / "checkpoint.pt"), "delete it to restart this run")
    assert not marker.exists()
    assert_in_our_words(command.stderr)


def test_a_newer_checkpoint_is_refused(run):
    (run / "summary.json").unlink()
    content = torch.load(run / "checkpoint.pt", weights_only=True)
    save_checkpoint(run / "checkpoint.pt", {**content, "version": 99})
    assert_refused(vsam("train", *QUICK, "--out", str(run), folder=run.parent), 1, "newer vsam", "Upgrade")


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
def test_a_truncated_checkpoint_is_refused(run, share):
    content = (run / "checkpoint.pt").read_bytes()
    (run / "checkpoint.pt").write_bytes(content[: int(share * len(content))])
    with pytest.raises(RunError, match="is damaged or not a vsam checkpoint"):
        load_checkpoint(run / "checkpoint.pt")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04", b"\x80\x02}q\x00.", b"e" * 1000])
def test_foreign_bytes_are_refused(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(RunError, match=str(path)) as caught:
        load_checkpoint(path)
    assert_in_our_words(str(caught.value))


def test_the_reason_is_told_in_our_words(tmp_path):
    path = tmp_path / "checkpoint.pt"
    with zipfile.ZipFile(io.BytesIO(), "w") as empty:
        empty.writestr("readme", "no checkpoint")
        other_zip = empty.fp
    contents = {
        "it is not a complete torch checkpoint": zipped({"model": torch.zeros(1000)})[:-100],
        "which could execute code \\(nothing was executed\\)": zipped(Touch(tmp_path / "marker")),
        "its content cannot be understood": other_zip.getvalue(),
    }
    for reason, content in contents.items():
        path.write_bytes(content)
        with pytest.raises(RunError, match=rf"{path} is damaged .*{reason}\. Do this\.$"):
            load_checkpoint(path, advice="Do this.")
    assert not (tmp_path / "marker").exists()


def test_a_path_that_no_file_can_have_is_refused():
    with pytest.raises(RunError, match=r"cannot be read: .*embedded null"):
        load_checkpoint(Path("a\0b"))


@pytest.mark.parametrize(
    "content",
    [
        {"weight": torch.zeros(3)},
        torch.zeros(3),
        [1, 2],
        None,
        {"format": "other"},
        {"format": "vsam-run"},
        {"format": "vsam-run", "version": "x"},
        {"format": "vsam-run", "version": None},
    ],
    ids=str,
)
def test_foreign_content_is_refused(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path)
    with pytest.raises(RunError, match=str(path)):
        load_checkpoint(path)


def test_a_folder_in_its_place_is_named(tmp_path):
    with pytest.raises(RunError, match=str(tmp_path)):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"model": {}},
        {"model": None},
        {"optimizer": {}},
        {"optimizer": {"state": {}, "param_groups": []}},
        {"step": "six"},
        {"step": -1},
        {"step": 13},
        {"progress": []},
        {"progress": {"folder": 3}},
        {"sums": {"colour": 1}},
        {"generators": {}},
        {"generators": {"cpu": 3}},
        {"generators": {"cpu": torch.zeros(3)}},
        {"progress": {"seconds": "x", "best": 0, "averaged_best": 0, "skips_in_a_row": 0, "metrics": []}},
        {"lengths": {}},
        {"lengths": {"steps.jsonl": "x"}},
    ],
    ids=str,
)
def test_content_that_does_not_fit_the_run_is_refused(run, change):
    (run / "summary.json").unlink()
    content = torch.load(run / "checkpoint.pt", weights_only=True)
    save_checkpoint(run / "checkpoint.pt", content | change)
    for _ in range(2):  # the second time shows that the folder is free again
        with pytest.raises(DamagedError, match=rf"{run / 'checkpoint.pt'} does not fit this run"):
            open_run(run)


def test_a_checkpoint_of_another_network_is_refused(run):
    (run / "summary.json").unlink()
    content = torch.load(run / "checkpoint.pt", weights_only=True)
    del content["model"]["head.weight" if "head.weight" in content["model"] else next(iter(content["model"]))]
    save_checkpoint(run / "checkpoint.pt", content)
    with pytest.raises(DamagedError, match="does not fit this run"):
        open_run(run)


def test_a_flipped_bit_is_noticed_unless_it_changes_nothing(run):
    path = run / "checkpoint.pt"
    content, whole = path.read_bytes(), load_checkpoint(path)
    num_noticed = 0
    for place in range(0, len(content), len(content) // 60):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            assert_same(load_checkpoint(path), whole)  # in the padding of the zip file
        except DamagedError:
            num_noticed += 1
    assert num_noticed > 50


def test_a_flipped_bit_of_a_weight_is_said_by_the_command(begun):
    content = bytearray((begun / "checkpoint.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (begun / "checkpoint.pt").write_bytes(content)
    command = vsam("train", *QUICK, "--out", str(begun), folder=begun.parent)
    assert_refused(command, 1, f"{begun / 'checkpoint.pt'} is damaged", "CRC", "delete it to restart this run")


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "checkpoint.pt")
    with pytest.raises(RunError, match="not a regular file"):
        load_checkpoint(tmp_path / "checkpoint.pt")
