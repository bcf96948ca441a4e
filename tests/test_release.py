"""What `make release` finds in archives: what is missing, what does not belong there, and traces of the machine."""

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import release

sys.path.pop(0)

SOURCE = release.ROOT / "src"


@pytest.fixture
def wheel():
    """The files that a wheel of this source has."""
    files = {
        str(path.relative_to(SOURCE)): path.read_bytes()
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    metadata = f"Metadata-Version: 2.4\nName: vsam\nVersion: {release.version()}\nRequires-Dist: torch>=2.6\n"
    metadata += "Requires-Dist: rich>=13.7; extra == 'lab'\n"
    info = f"vsam-{release.version()}.dist-info"
    return {**files, f"{info}/METADATA": metadata.encode(), f"{info}/licenses/LICENSE": b"MIT"}


def info(files, name):
    return next(path for path in files if path.endswith(name))


def test_a_complete_wheel_passes(wheel):
    assert release.check_wheel(wheel) == []


@pytest.mark.parametrize("name", ["vsam/py.typed", "vsam/lab/data/fashion_mini.npz", "vsam_command.py"])
def test_a_missing_file_is_found(wheel, name):
    del wheel[name]
    assert release.check_wheel(wheel) == [f"{name} is missing"]


def test_what_does_not_belong_is_found(wheel):
    wheel["tests/test_step.py"] = b""
    assert release.check_wheel(wheel) == ["tests/test_step.py does not belong there"]


def test_traces_of_the_machine_are_found(wheel):
    wheel["vsam/names.py"] += f"# {release.ROOT}/src".encode()
    assert release.check_wheel(wheel) == ["vsam/names.py names a place on this machine"]


def test_another_version_more_requirements_and_no_licence_are_found(wheel):
    metadata = info(wheel, "METADATA")
    wheel[metadata] = wheel[metadata].replace(b"Version: 0", b"Version: 9").replace(b"; extra == 'lab'", b"")
    del wheel[info(wheel, "LICENSE")]
    assert release.check_wheel(wheel) == [
        f"its metadata have another version than {release.version()}",
        "LICENSE is missing",
        "it needs more than torch: ['torch>=2.6', 'rich>=13.7']",
    ]


def test_an_sdist_needs_its_sources():
    problems = release.check_sdist({"pyproject.toml": b"", "src/vsam/__pycache__/names.pyc": b""})
    assert "src/vsam/__init__.py is missing" in problems
    assert "pyproject.toml is missing" not in problems
    assert problems[-1] == "src/vsam/__pycache__/names.pyc does not belong there"


def test_both_kinds_of_archives_are_read(tmp_path):
    (tmp_path / "file.py").write_text("x = 1\n")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.write(tmp_path / "file.py", "vsam/file.py")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "file.py", "vsam-0.2.0/src/file.py")
    assert release.read_archive(tmp_path / "a.whl") == {"vsam/file.py": b"x = 1\n"}
    assert release.read_archive(tmp_path / "a.tar.gz") == {"src/file.py": b"x = 1\n"}


def test_the_changelog_has_a_section_for_this_version():
    assert f"\n## [{release.version()}]" in (release.ROOT / "CHANGELOG.md").read_text()
