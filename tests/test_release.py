"""`make release` finds missing files, foreign files and traces of the machine in archives."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

import release

sys.path.pop(0)

pytestmark = pytest.mark.skipif(not (release.ROOT / ".git").exists(), reason="not a git clone")


@pytest.fixture
def wheel():
    """The files that a wheel of this source has."""
    files = {name.removeprefix("src/"): (release.ROOT / name).read_bytes() for name in tracked("src")}
    metadata = f"Metadata-Version: 2.4\nName: vsam\nVersion: {release.version()}\nRequires-Dist: torch>=2.6\n"
    metadata += "Requires-Dist: rich>=13.7; extra == 'lab'\n"
    info = f"vsam-{release.version()}.dist-info"
    return {**files, f"{info}/METADATA": metadata.encode(), f"{info}/licenses/LICENSE": b"MIT"}


@pytest.fixture
def sdist():
    """The files that an sdist of this source has."""
    names = [name for name in tracked() if not name.startswith(".")]
    files = {name: (release.ROOT / name).read_bytes() for name in names}
    return {**files, ".gitignore": b"", "PKG-INFO": b""}


def tracked(*folders):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=release.ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (release.ROOT / name).is_file()]


def info(files, name):
    return next(path for path in files if path.endswith(name))


def test_a_complete_wheel_passes(wheel):
    assert release.check_wheel(wheel) == []


@pytest.mark.parametrize(
    "name",
    [
        "vsam/py.typed",
        "vsam/lab/data/fashion_mini.npz",
        "vsam/lab/recipes/fashion-mini.toml",
        "vsam/lab/report/template.html",
        "vsam_command.py",
    ],
)
def test_a_missing_file_is_found(wheel, name):
    del wheel[name]
    assert release.check_wheel(wheel) == [f"{name} is missing"]


def test_what_does_not_belong_is_found(wheel):
    wheel["tests/test_step.py"] = b""
    assert release.check_wheel(wheel) == ["tests/test_step.py does not belong there"]


@pytest.mark.parametrize("place", [f"{release.ROOT}/src", f"'{Path.home()}'"])
def test_traces_of_the_machine_are_found(wheel, place):
    wheel["vsam/methods.py"] += f"# {place}".encode()
    assert release.check_wheel(wheel) == ["vsam/methods.py names a place on this machine"]


def test_a_place_is_not_found_inside_of_other_names(wheel, monkeypatch):
    monkeypatch.setattr(release, "ROOT", Path("/vsam"))
    assert release._check_texts({"README.md": b"src/vsam/methods.py, /vsam.py, /vsam-2"}) == []
    assert release._check_texts({"README.md": b"cd /vsam"}) == ["README.md names a place on this machine"]


def test_another_version_more_requirements_and_no_licence_are_found(wheel):
    metadata = info(wheel, "METADATA")
    wheel[metadata] = wheel[metadata].replace(b"Version: 0", b"Version: 9").replace(b"; extra == 'lab'", b"")
    del wheel[info(wheel, "LICENSE")]
    assert release.check_wheel(wheel) == [
        f"its metadata have another version than {release.version()}",
        "LICENSE is missing",
        "it needs more than torch: ['torch>=2.6', 'rich>=13.7']",
    ]


def test_a_complete_sdist_passes(sdist):
    assert release.check_sdist(sdist) == []


def test_what_an_sdist_lacks_and_what_does_not_belong_there_is_found(sdist):
    del sdist["tests/test_packaging.py"]
    sdist["src/vsam/__pycache__/methods.pyc"] = b""
    assert release.check_sdist(sdist) == [
        "tests/test_packaging.py is missing",
        "src/vsam/__pycache__/methods.pyc does not belong there",
    ]


def test_both_kinds_of_archives_are_read(tmp_path):
    (tmp_path / "file.py").write_text("x = 1\n")
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.write(tmp_path / "file.py", "vsam/file.py")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "file.py", "vsam-0.2.0/src/file.py")
    assert release.read_archive(tmp_path / "a.whl") == {"vsam/file.py": b"x = 1\n"}
    assert release.read_archive(tmp_path / "a.tar.gz") == {"src/file.py": b"x = 1\n"}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A small clone, committed, in the place of this one."""
    (tmp_path / "src/vsam").mkdir(parents=True)
    (tmp_path / "src/vsam/version.py").write_text('__version__ = "1.0.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.0.0] - today\n")
    (tmp_path / "pyproject.toml").write_text('[tool.hatch.metadata.hooks.custom]\nrepository = ""\n')
    author = ["-c", "user.name=one", "-c", "user.email=one@example.org"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def test_a_committed_source_is_ready_and_told_what_the_repository_is_for(clone, capsys):
    release.check_source(dirty=False)
    assert "repository in pyproject.toml is empty" in capsys.readouterr().out
    (clone / "pyproject.toml").write_text('[tool.hatch.metadata.hooks.custom]\nrepository = "https://example.org"\n')
    release.check_source(dirty=True)
    assert capsys.readouterr().out == ""


def test_a_source_with_changes_is_released_only_to_try(clone):
    (clone / "notes.txt").write_text("mine\n")
    with pytest.raises(SystemExit, match=r"Not committed:\n\?\? notes.txt\n.*--dirty"):
        release.check_source(dirty=False)
    release.check_source(dirty=True)


def test_a_version_that_the_changelog_does_not_have_is_not_released(clone):
    (clone / "src/vsam/version.py").write_text('__version__ = "1.1.0"\n')
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md has no section \[1\.1\.0\]"):
        release.check_source(dirty=True)


def test_a_command_that_fails_is_shown_with_what_it_said():
    program = "import sys; print('half'); sys.exit('no network')"
    with pytest.raises(SystemExit, match=r"(?s)failed:\nhalf\n\nno network"):
        release._run(sys.executable, "-c", program)


def test_the_changelog_has_a_section_for_this_version():
    assert f"\n## [{release.version()}]" in (release.ROOT / "CHANGELOG.md").read_text()
