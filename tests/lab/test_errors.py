"""Hints to what was meant, and to what is missing."""

import importlib.metadata
import json

import pytest

from vsam.lab.errors import install_line, nearest


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("vsm", ["sam", "vsam"], " Did you mean 'vsam'? Known: sam, vsam."),
        ("zzz", ["sam", "vsam"], " Known: sam, vsam."),
        ("gamma", (), " Known: none."),
    ],
)
def test_the_nearest_name_and_all_there_are(name, known, hint):
    assert nearest(name, iter(known)) == hint


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "pip install 'vsam[lab,tune]'"),
        ({"url": "file:///a/b", "dir_info": {"editable": True}}, "pip install -e '/a/b[lab,tune]'"),
        ({"url": "file:///a/b", "dir_info": {}}, "pip install '/a/b[lab,tune]'"),
        ({"url": "file:///a%20b", "dir_info": {}}, "pip install '/a b[lab,tune]'"),
        (
            {"url": "https://x/v.git", "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": "0"}},
            "pip install 'vsam[lab,tune] @ git+https://x/v.git@main'",
        ),
        ({"url": "https://x/v.whl", "archive_info": {}}, "pip install 'vsam[lab,tune] @ https://x/v.whl'"),
    ],
)
def test_the_line_that_installs_an_extra_fits_how_vsam_was_installed(tmp_path, monkeypatch, origin, line):
    folder = tmp_path / "vsam-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vsam\nVersion: 1\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importlib.metadata.version("vsam") == "1"
    assert install_line("lab", "tune") == line
