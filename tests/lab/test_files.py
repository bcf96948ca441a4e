"""Files are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from vsam.lab.errors import RunError, UserError
from vsam.lab.files import append, check_output, is_too_deep, make_folder, read_regular, write_atomically, write_output


@pytest.mark.parametrize("content", ["größer", b"\x00\xff"])
def test_content_arrives_and_nothing_else_stays(tmp_path, content):
    path = tmp_path / "file"
    path.write_text("old")
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ["file"]


def test_permissions_follow_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", "x")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)


def test_a_failure_leaves_the_old_file_and_no_temporary_one(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=f"{tmp_path / 'folder'} could not be written: Is a directory"):
        write_atomically(tmp_path / "folder", "x")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RunError, match=str(tmp_path / "no" / "file")):
        write_atomically(tmp_path / "no" / "file", "x")


def test_folders_are_made_with_their_parents_and_may_exist(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert os.listdir(tmp_path / "a" / "b") == []


def test_a_link_to_nowhere_is_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="link cannot be written to"):
        make_folder(tmp_path / "link")


def test_a_link_stays_and_the_file_behind_it_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("real", "new"):
        (tmp_path / name).symlink_to(tmp_path / "there" / name)
    (tmp_path / "there" / "real").write_text("old")
    for name in ("real", "new"):
        write_atomically(tmp_path / name, "x")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "there" / name).read_text() == "x"
    assert sorted(os.listdir(tmp_path / "there")) == ["new", "real"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/null", path)])
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path, make):
    path = tmp_path / "pipe"
    make(path)
    before = path.lstat()
    with pytest.raises(RunError, match="pipe could not be written: it is a device or a pipe"):
        write_atomically(path, "x")
    with pytest.raises(UserError, match=r"pipe cannot be written: it is a device.* Give a file name"):
        check_output(path)
    for refused in (lambda: append(path, "x"), lambda: read_regular(path)):
        with pytest.raises(OSError, match="not a regular file"):
            refused()
    assert path.lstat() == before
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_circle_of_links_is_named(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "a")
    with pytest.raises(UserError, match="a cannot be written: Too many levels of symbolic links"):
        check_output(tmp_path / "a")


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1"])
def test_the_standard_output_has_several_names(capsys, name):
    check_output(Path(name))
    write_output(Path(name), "a table")
    assert capsys.readouterr().out == "a table"


@pytest.mark.parametrize("name", ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"])
def test_other_streams_are_refused_even_where_they_lead_to_a_file(name):
    with pytest.raises(UserError, match="Give a file name"):
        check_output(Path(name))


def test_what_is_written_is_on_the_disk_with_its_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    append(tmp_path / "lines", "a\n")
    append(tmp_path / "lines", "b\n")
    assert synced == [str(tmp_path / "lines"), str(tmp_path), str(tmp_path / "lines")]
    write_atomically(tmp_path / "whole", "x")
    assert synced[3].startswith(str(tmp_path / ".whole."))
    assert synced[4:] == [str(tmp_path)]
    assert (tmp_path / "lines").read_text() == "a\nb\n"


def test_what_python_cannot_follow_is_too_deep():
    deep: object = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert is_too_deep(deep)
    assert not is_too_deep({"a": [{"b": list(range(1000))}]})
