"""Files are written whole or not at all."""

import os
import stat

import pytest

from vsam.lab.errors import RunError, UserError
from vsam.lab.files import make_folder, write_atomically


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
