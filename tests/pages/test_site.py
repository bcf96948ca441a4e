"""The site builds without a warning, documents every public name, asks for nothing from a network, and fits a phone."""

import importlib
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import vsam
from pages.read import ROOT

pytest.importorskip("sphinx")
pytest.importorskip("furo")
pytest.importorskip("myst_parser")
pytestmark = pytest.mark.slow

MODULES = (
    *("amp", "between", "distributed", "quantize", "sharpness", "trajectory", "when", "where", "lab"),
    *("integrations.accelerate", "integrations.lightning", "integrations.peft", "integrations.transformers"),
)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    makefile = (ROOT / "Makefile").read_text()
    (options,) = re.findall(r"sphinx-build (.+) docs docs/_build/html", makefile)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        *options.split(),
        "-d",
        str(folder / "trees"),
        "docs",
        str(folder / "html"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "html"


def test_warnings_are_errors_and_nothing_is_taken_from_an_earlier_build() -> None:
    assert re.search(r"sphinx-build -E -W --keep-going", (ROOT / "Makefile").read_text())


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    known = {name for kind, items in inventory.data.items() if kind.startswith("py:") for name in items}
    for module_name in ("vsam", *(f"vsam.{name}" for name in MODULES)):
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, types.ModuleType):
                is_also_top = getattr(vsam, name, None) is value and f"vsam.{name}" in known
                assert f"{module_name}.{name}" in known or is_also_top, f"{module_name}.{name} is not in the reference"


def test_every_command_has_its_section(site: Path) -> None:
    from typer.main import get_command

    from vsam.lab.cli.app import app

    page = (site / "commands.html").read_text(encoding="utf-8")
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert f'id="vsam-{name}"' in page


def test_no_page_asks_for_anything_from_a_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text(encoding="utf-8")):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{page.name}: {tag}"


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_a_screen_and_a_phone(site: Path, browser: Any, width: int) -> None:
    pages = [
        "index",
        "choosing",
        "reproduction",
        "gallery/index",
        "api/methods",
        "commands",
        "design",
        "loops/lightning",
        "when",
        "guide",
        "troubleshooting",
        "when-not",
    ]
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in pages:
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider than {width}"
        hidden = "[...document.querySelectorAll('article table')].some(t => t.scrollWidth > t.clientWidth + 1)"
        assert width > 390 or not page.evaluate(hidden), f"{name} hides a column"
        broken = page.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
        assert broken == [], f"{name}: {broken}"
    page.close()
    assert all(url.startswith(("file:", "data:")) for url in asked)
