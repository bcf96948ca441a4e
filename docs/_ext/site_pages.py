"""The menu, and links that lead out of this folder: left to the build, so that pages read well as files."""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
FILES = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
"""Pages whose text is a file of the repository's root."""
PAGES = {"README.md": "index.md", **{name: f"{page}.md" for page, name in FILES.items()}}
"""Files of the root, and the pages that take their place on the site."""
LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def setup(app: Sphinx) -> dict[str, Any]:
    """What Sphinx calls."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    folder = (DOCS / page).parent
    if page in FILES:
        app.env.note_dependency(str(ROOT / FILES[page]))
        source[0], folder = (ROOT / FILES[page]).read_text(encoding="utf-8"), ROOT
    source[0] = LINK.sub(lambda found: _target(app, page, folder, found[1], found[2] or ""), source[0])
    if page == app.config.root_doc:
        source[0] += "".join(_menu(app, caption, names) for caption, names in _settings(app)["SITEMAP"].items())
    elif any(f"{page.removesuffix('README')}*" in names for names in _settings(app)["SITEMAP"].values()):
        others = sorted(path.stem for path in folder.glob("*.md") if path.stem != "README")
        source[0] += _toctree(others)


def _target(app: Sphinx, page: str, folder: Path, target: str, anchor: str) -> str:
    """A link as the site needs it: to a page, else to the repository on the web, else to a copy of the file."""
    path = Path(os.path.normpath(folder / target))
    name = path.relative_to(ROOT).as_posix()
    if name in PAGES:
        path = DOCS / PAGES[name]
    repository = _settings(app)["REPOSITORY"]
    if path.is_relative_to(DOCS) and not path.is_dir():
        return os.path.relpath(path, (DOCS / page).parent) + anchor
    if repository:
        return f"{repository}/{'tree' if path.is_dir() else 'blob'}/main/{name}{anchor}"
    copied = min(path.glob("*.*")) if path.is_dir() else path
    return f"path:{os.path.relpath(copied, (DOCS / page).parent)}"


def _settings(app: Sphinx) -> dict[str, Any]:
    return app.config._raw_config


def _menu(app: Sphinx, caption: str, names: list[str]) -> str:
    pages = [name.replace("*", "README") for name in names]
    return _toctree([page for page in pages if (DOCS / f"{page}.md").is_file()], caption)


def _toctree(pages: list[str], caption: str = "") -> str:
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return "\n\n```{toctree}\n" + options + "\n" + "\n".join(pages) + "\n```\n"
