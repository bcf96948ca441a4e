from pathlib import Path

import pytest

from vsam.lab.data import DataError
from vsam.lab.data.sources import KnownFile, check_content, checksum_of, data_directory


def test_the_argument_comes_before_the_environment_before_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("VSAM_DATA", str(tmp_path / "environment"))
    assert data_directory(tmp_path / "argument") == tmp_path / "argument"
    assert data_directory() == tmp_path / "environment"
    monkeypatch.delenv("VSAM_DATA")
    assert data_directory() == tmp_path / "xdg" / "vsam"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_directory() == tmp_path / ".cache" / "vsam"
    assert data_directory("~/here") == tmp_path / "here"


@pytest.mark.parametrize(
    "checksum", ["md5:900150983cd24fb0d6963f7d28e17f72", "sha1:a9993e364706816aba3e25717850c26c9cd0d89d"]
)
def test_checksums_of_abc_are_the_published_ones(tmp_path, checksum):
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert checksum_of(path, like=checksum) == checksum
    check_content(path, b"abc", KnownFile("abc", 3, checksum), "advice")
    with pytest.raises(DataError, match=rf"abc is damaged: .* instead of {checksum}. Do this."):
        check_content(path, b"abd", KnownFile("abc", 3, checksum), "Do this.")


def test_a_wrong_size_is_said_in_bytes():
    with pytest.raises(DataError, match="x is damaged: its content has 2 bytes instead of 1,000"):
        check_content(Path("x"), b"ab", KnownFile("x", 1000, "md5:0"), "")
