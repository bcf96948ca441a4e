"""The package's content: imports of the core, names, version, links, files of the wheel."""

import ast
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import vsam

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "vsam"
CORE = sorted(path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ("lab", "integrations"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MACHINE_PATHS = ("/" + "work/", "/" + "root/", "/" + "home/")


def imported_by(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            names.add(node.module or "")
    return names


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def shipped_files() -> list[Path]:
    """Return the files of a clone, also before the first commit: everything that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git clone")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_imports_torch_and_the_standard_library_only(path: Path) -> None:
    known = sys.stdlib_module_names | {"torch", "vsam"} | ({"vsam_command"} if path.name == "__main__.py" else set())
    for name in imported_by(path):
        assert name.split(".")[0] in known, f"{path.name} imports {name}"
        assert not name.startswith("vsam.lab"), f"{path.name} imports the lab"


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_names_no_other_package(path: Path) -> None:
    """Comments, docstrings and messages included: what knows another package lives in its integration."""
    found = re.findall(r"lightning|transformers|accelerate|fabric", path.read_text(), re.IGNORECASE)
    assert not found or path.is_relative_to(SOURCE / "integrations")


def test_importing_the_package_loads_nothing_of_the_lab() -> None:
    heavy = [
        "matplotlib",
        "PIL",
        "pydantic",
        "rich",
        "tomli_w",
        "typer",
        "vsam.lab",
        "vsam.integrations",
        "vsam.sharpness",
    ]
    program = f"import sys, vsam; print([name for name in {heavy} if name in sys.modules]); vsam.sharpness.measure"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_names_are_imported_when_they_are_used_and_the_compiler_never() -> None:
    program = """
import sys
import vsam
assert "torch" not in sys.modules
assert set(vsam.__all__) <= set(dir(vsam))
import torch
before = set(sys.modules)
for name in vsam.__all__:
    getattr(vsam, name)
new = {name for name in set(sys.modules) - before if not name.startswith("vsam")}
print(sorted(name for name in new if name.split(".")[0] not in sys.stdlib_module_names))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_type_checkers_see_the_names_that_are_imported_late() -> None:
    (block,) = (node for node in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(node, ast.If))
    names = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(names) == sorted(vsam.__all__)


def test_torch_is_the_only_requirement() -> None:
    assert [re.split(r"[<>=!~ ]", line)[0] for line in PROJECT["project"]["dependencies"]] == ["torch"]


def test_the_version_is_written_in_one_place() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    source = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text()
    assert f'__version__ = "{vsam.__version__}"' in source
    assert (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]) == SOURCE / "version.py"
    assert f"version: {vsam.__version__}" in (ROOT / "CITATION.cff").read_text().splitlines()


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_name_in_all_exists(path: Path) -> None:
    if path == SOURCE / "lab" / "__init__.py" or path.name == "__main__.py":
        pytest.skip("has no names")
    if "_step" in path.parts:
        pytest.skip("is private")
    if "lab" in path.relative_to(SOURCE).parts:
        pytest.importorskip("typer")
    if path.parent.name == "integrations" and path.name != "__init__.py":
        pytest.importorskip(path.stem.split("_")[0])  # the package that it is named after
    name = module_name(path)
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])  # modules that are not public have none
    assert [missing for missing in listed if not hasattr(module, missing)] == []
    assert len(set(listed)) == len(listed)


def test_public_packages_name_their_modules_public_classes() -> None:
    for package in (vsam.when, vsam.where, vsam.between):
        found = set()
        for module in pkgutil.iter_modules(package.__path__):
            public = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
            found |= {name for name in public["__all__"] if isinstance(public[name], type)}
        assert found == set(package.__all__)
        assert found <= set(vsam.__all__)


def test_no_file_speaks_of_the_machine_it_was_written_on() -> None:
    for path in shipped_files():
        data = path.read_bytes()
        for machine_path in MACHINE_PATHS:
            assert machine_path.encode() not in data, f"{path.relative_to(ROOT)} contains {machine_path}"


def test_the_wheel_takes_the_whole_package() -> None:
    assert (SOURCE / "py.typed").is_file()
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/vsam"]
    ignored = subprocess.run(
        ["git", "check-ignore", "src/vsam/py.typed", "src/vsam/lab/data/catalog.py", "src/vsam/lab/train.py"],
        cwd=ROOT,
        capture_output=True,
    )
    assert ignored.stdout == b"", "hatchling leaves out what git ignores"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="needs hatchling to build")
def test_a_built_wheel_holds_the_marker_and_every_module(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("vsam-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {str(path.relative_to(SOURCE.parent)) for path in [*SOURCE.rglob("*.py"), SOURCE / "py.typed"]}
    assert wanted <= names
