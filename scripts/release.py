"""Build wheel and sdist, look into them, and try them in empty environments: what `make release` runs.

    python scripts/release.py                 # build into dist/, check, install and try
    python scripts/release.py --no-install    # build and check only

Nothing is uploaded. Needs a network, or a pip that finds torch and the extras.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
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


def read_archive(path: Path) -> dict[str, bytes]:
    """The files of a wheel, or of an sdist without the folder that holds them all."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(path) as sdist:
        members = [(member.name.partition("/")[2], sdist.extractfile(member)) for member in sdist if member.isfile()]
        return {name: file.read() for name, file in members if file is not None}


def check_wheel(files: Mapping[str, bytes]) -> list[str]:
    """What is wrong with the files of a wheel."""
    source = ROOT / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file() and _ships(path)}
    inside = {name for name in files if ".dist-info/" not in name}
    problems = [f"{name} is missing" for name in sorted(wanted - inside)]
    problems += [f"{name} does not belong there" for name in sorted(inside - wanted)]
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
    """What is wrong with the files of an sdist."""
    needed = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "src/vsam/__init__.py")
    needed += ("src/vsam/py.typed", "src/vsam_command.py", "tests/test_packaging.py", "PKG-INFO")
    return [f"{name} is missing" for name in needed if name not in files] + _check_texts(files)


def _ships(path: Path) -> bool:
    return "__pycache__" not in path.parts and path.suffix != ".pyc" and not path.name.endswith(".egg-info")


def _check_texts(files: Mapping[str, bytes]) -> list[str]:
    """Traces of the machine on which they were built, and files that nobody wrote."""
    places = {str(ROOT).encode(), str(Path.home()).encode() + b"/", sys.prefix.encode()}
    found = [f"{name} names a place on this machine" for name, data in files.items() if any(p in data for p in places)]
    return found + [f"{name} does not belong there" for name in files if not _ships(Path(name))]


def build(tools: Path) -> list[Path]:
    """Both archives, in an empty dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    venv.create(tools, with_pip=True)
    _run(tools / "bin" / "pip", "install", "--quiet", "build", "twine")
    _run(tools / "bin" / "python", "-m", "build", "--outdir", str(DIST), str(ROOT))
    archives = sorted(DIST.iterdir())
    _run(tools / "bin" / "twine", "check", "--strict", *map(str, archives))
    return archives


def try_archive(archive: Path, extras: str) -> None:
    """Install an archive into an empty environment and use it as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder) / "venv", with_pip=True)
        bin_folder = Path(folder) / "venv" / "bin"
        wanted = f"vsam[{extras}] @ {archive.as_uri()}" if extras else f"vsam @ {archive.as_uri()}"
        _run(bin_folder / "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), wanted)
        said = _run(bin_folder / "python", "-c", CORE, folder=folder)
        assert said.strip() == version(), said
        if not extras:
            done = subprocess.run([bin_folder / "vsam", "--version"], capture_output=True, text=True, cwd=folder)
            assert done.returncode == 1, done.stdout
            assert "pip install 'vsam[lab]'" in done.stderr, done.stderr
            return
        assert _run(bin_folder / "vsam", "--version", folder=folder).strip() == f"vsam {version()}"
        _run(bin_folder / "vsam", "methods", folder=folder)
        _run(bin_folder / "vsam", "train", "--tiny", folder=folder)
        _run(bin_folder / "vsam", "report", "runs", folder=folder)


def _run(*command: str | Path, folder: str | None = None) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:300]} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description="Build, check and try a release.")
    parser.add_argument("--no-install", action="store_true", help="build and check only")
    parser.add_argument("--extras", default=EXTRAS, help=f"extras of the second trial (default: {EXTRAS})")
    options = parser.parse_args()
    if f"## [{version()}]" not in (ROOT / "CHANGELOG.md").read_text():
        sys.exit(f"CHANGELOG.md has no section [{version()}]: move the lines of Unreleased there.")
    with tempfile.TemporaryDirectory() as tools:
        archives = build(Path(tools))
    for archive in archives:
        files = read_archive(archive)
        problems = check_wheel(files) if archive.suffix == ".whl" else check_sdist(files)
        if problems:
            sys.exit(f"{archive.name}:\n" + "\n".join(problems))
        print(f"{archive.name}: {len(files)} files, {archive.stat().st_size / 2**20:.1f} MiB, as they should be")
    if not options.no_install:
        for archive in archives:
            for extras in ("", options.extras):
                try_archive(archive, extras)
                print(f"{archive.name} with {extras or 'torch alone'}: installs and works")


if __name__ == "__main__":
    main()
