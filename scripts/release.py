"""Build wheel and sdist, look into them, and try them in empty environments: what `make release` runs.

    python scripts/release.py                 # build, check, install and try
    python scripts/release.py --no-install    # build and check only

The archives are moved to dist/ when everything has passed. Nothing is uploaded. Needs a git clone without uncommitted
changes (or --dirty, to try), and a network, or a pip that finds torch and the extras.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
EXTRAS = "lab,tune,tensorboard"
CORE = """
import sys
import torch, vsam
model = torch.nn.Linear(3, 2)
optimizer = vsam.create("vsam", torch.optim.SGD(model.parameters(), lr=0.1), model=model)
before = model.weight.detach().clone()
def closure():
    loss = model(torch.ones(4, 3)).square().mean()
    loss.backward()
    return loss
optimizer.step(closure)
assert optimizer.num_samples == 1 and not torch.equal(before, model.weight)
assert all(getattr(vsam, name) is not None for name in vsam.__all__)
assert "site-packages" in vsam.__file__, vsam.__file__
print(vsam.__version__)
"""


def version() -> str:
    """The version of the source."""
    found = re.search(r'__version__ = "(.+)"', (ROOT / "src" / "vsam" / "version.py").read_text())
    assert found is not None
    return found[1]


def source_files() -> set[str]:
    """Return the files of a clone once everything is committed: all files that git does not ignore."""
    listed = _run("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", folder=ROOT)
    return {name for name in listed.split("\0") if (ROOT / name).is_file()}


def check_source(dirty: bool) -> None:
    """Stop where the source is not ready: its changes are not committed, or not in the changelog."""
    changes = _run("git", "status", "--short", folder=ROOT)
    if changes and not dirty:
        sys.exit(f"Not committed:\n{changes}Commit it, or run python scripts/release.py --dirty to try.")
    if f"\n## [{version()}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        sys.exit(f"CHANGELOG.md has no section [{version()}]: move the lines of Unreleased there.")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if not project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]:
        print("Note: repository in pyproject.toml is empty, so PyPI cannot follow the README's links to files.")


def read_archive(path: Path) -> dict[str, bytes]:
    """The files of a wheel, or of an sdist without the folder that holds them all."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(path) as sdist:
        members = [(member.name.partition("/")[2], sdist.extractfile(member)) for member in sdist if member.isfile()]
        return {name: file.read() for name, file in members if file is not None}


def check_wheel(files: Mapping[str, bytes]) -> list[str]:
    """Return the problems of a wheel's files."""
    wanted = {name.removeprefix("src/") for name in source_files() if name.startswith("src/")}
    problems = _compare({name for name in files if ".dist-info/" not in name}, wanted)
    metadata = next((text.decode() for name, text in files.items() if name.endswith(".dist-info/METADATA")), "")
    if f"\nVersion: {version()}\n" not in metadata:
        problems.append(f"its metadata have another version than {version()}")
    if not any(name.endswith("LICENSE") for name in files):
        problems.append("LICENSE is missing")
    requirements = re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata, re.MULTILINE)
    if [re.split(r"[^a-z0-9]", one)[0] for one in requirements] != ["torch"]:
        problems.append(f"it needs more than torch: {requirements}")
    return problems + _check_texts(files)


def check_sdist(files: Mapping[str, bytes]) -> list[str]:
    """Return the problems of an sdist's files."""
    wanted = {name for name in source_files() if not name.startswith(".")}
    return _compare(set(files), {*wanted, ".gitignore", "PKG-INFO"}) + _check_texts(files)


def _compare(found: set[str], wanted: set[str]) -> list[str]:
    missing = [f"{name} is missing" for name in sorted(wanted - found)]
    return missing + [f"{name} does not belong there" for name in sorted(found - wanted)]


def _check_texts(files: Mapping[str, bytes]) -> list[str]:
    """Traces of the machine on which they were built."""
    places = b"|".join(re.escape(os.fsencode(place)) for place in (ROOT, Path.home()) if place.name)
    named = re.compile(rb"(?<![\w.~-])(?:" + places + rb")(?![\w.-])")
    return [f"{name} names a place on this machine" for name, data in files.items() if named.search(data)]


def build(folder: Path) -> list[Path]:
    """Both archives, by fresh tools in a folder."""
    tools = _new_environment(folder / "tools")
    _run(tools / "pip", "install", "--quiet", "build", "twine")
    _run(tools / "python", "-m", "build", "--outdir", folder / "dist", ROOT)
    archives = sorted((folder / "dist").iterdir())
    _run(tools / "twine", "check", "--strict", *archives)
    return archives


def try_archive(archive: Path, extras: str) -> None:
    """Install an archive into an empty environment and use it as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        bin_folder = _new_environment(Path(folder) / "venv")
        wanted = f"vsam[{extras}] @ {archive.as_uri()}" if extras else f"vsam @ {archive.as_uri()}"
        _run(bin_folder / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wanted)
        said = _run(bin_folder / "python", "-c", CORE, folder=folder)
        assert said.strip() == version(), said
        if not extras:
            done = subprocess.run([bin_folder / "vsam", "--version"], capture_output=True, text=True, cwd=folder)
            assert done.returncode == 1, done.stdout
            assert "pip install 'vsam[lab]" in done.stderr, done.stderr  # from the file that was installed
            return
        assert _run(bin_folder / "vsam", "--version", folder=folder).strip() == f"vsam {version()}"
        _run(bin_folder / "vsam", "methods", folder=folder)
        _run(bin_folder / "vsam", "train", "--tiny", folder=folder)
        _run(bin_folder / "vsam", "report", "runs", folder=folder)


def _new_environment(folder: Path) -> Path:
    _run(sys.executable, "-m", "venv", folder)
    return folder / "bin"


def _run(*command: str | Path, folder: str | Path | None = None) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:300]} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Build, check and try a release.")
    parser.add_argument("--no-install", action="store_true", help="build and check only")
    parser.add_argument("--extras", default=EXTRAS, help=f"extras of the second trial (default: {EXTRAS})")
    parser.add_argument("--dirty", action="store_true", help="go on with changes that are not committed, to try")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))  # through the clean-up of temporary folders
    check_source(options.dirty)
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        archives = build(Path(folder))
        for archive in archives:
            files = read_archive(archive)
            problems = check_wheel(files) if archive.suffix == ".whl" else check_sdist(files)
            if problems:
                sys.exit(f"{archive.name}:\n" + "\n".join(problems))
            size = archive.stat().st_size / 2**20
            print(f"{archive.name}: {len(files)} files, {size:.1f} MiB, as they should be", flush=True)
        for archive in [] if options.no_install else archives:
            for extras in ("", options.extras):
                try_archive(archive, extras)
                print(f"{archive.name} with {extras or 'torch alone'}: installs and works", flush=True)
        DIST.mkdir()
        for archive in archives:
            shutil.move(archive, DIST)
    print("Both are in dist/.")


if __name__ == "__main__":
    main()
