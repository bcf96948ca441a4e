"""The menu, and pages for files outside this folder that pages link to, so that nothing readable is a download."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PAGES = {"README.md": "index", "CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}
"""Files of the root, and the pages that take their place on the site."""
COPIES = DOCS / "files"
"""Made by every build: a page for each Markdown or Python file outside `docs` that a page links to."""
LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    _make_copies()
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}


def _make_copies() -> None:
    """Create an empty page for every file that pages link to, directly or through another such file."""
    texts = [path for path in DOCS.rglob("*.md") if COPIES not in path.parents]
    texts += [ROOT / name for name in PAGES]
    copies = set()
    while texts:
        for path in _linked(texts.pop()):
            copy = DOCS / f"{_page_of(path)}.md"
            if copy.is_relative_to(COPIES) and copy not in copies:
                copies.add(copy)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.touch()
                texts += [path] if path.suffix == ".md" else []
    for copy in {*COPIES.rglob("*.md")} - copies:
        copy.unlink(missing_ok=True)


def _linked(text: Path) -> Iterator[Path]:
    """Find the files that a page links to and that have a page of the site."""
    for target, _ in LINK.findall(text.read_text(encoding="utf-8")):
        path = _file(text.parent, target)
        if path.suffix in (".md", ".py") and path.is_file():
            yield path


def _file(folder: Path, target: str) -> Path:
    """Return the file that a link leads to: a folder's own page, where there is one."""
    path = Path(os.path.normpath(folder / target))
    return next((page for page in (path / "index.md", path / "README.md") if page.is_file()), path)


def _page_of(path: Path) -> str:
    """Return the page of the site for a file."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix().removesuffix(".md")
    return PAGES.get(name) or f"{COPIES.name}/{name.removesuffix('.md').replace('.', '_')}"


def _sources() -> dict[str, Path]:
    """Map pages to the files outside this folder that they show."""
    files = (path for suffix in ("md", "py") for path in ROOT.glob(f"*/**/*.{suffix}") if not path.is_relative_to(DOCS))
    shown = {_page_of(path): path for path in files if (DOCS / f"{_page_of(path)}.md").is_file()}
    return {**shown, **{page: ROOT / name for name, page in PAGES.items() if page != "index"}}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    path = DOCS / f"{page}.md"
    if page in PAGES.values() and page != app.config.root_doc:
        path = next(ROOT / name for name, known in PAGES.items() if known == page)
    elif page.startswith(f"{COPIES.name}/"):
        path = _sources()[page]
    if not path.is_relative_to(DOCS):
        app.env.note_dependency(str(path))
        source[0] = path.read_text(encoding="utf-8") if path.suffix == ".md" else _script(path)
    if page.startswith(f"{COPIES.name}/"):
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"
    source[0] = LINK.sub(lambda found: _target(page, path.parent, found[1], found[2] or ""), source[0])
    sitemap = app.config._raw_config["SITEMAP"]
    if page == app.config.root_doc:
        source[0] += "".join(_menu(caption, names) for caption, names in sitemap.items())
    elif any(f"{page.removesuffix('index')}*" in names for names in sitemap.values()):
        source[0] += _toctree(sorted(other.stem for other in path.parent.glob("*.md") if other.stem != "index"))


def _script(path: Path) -> str:
    """Show a program as a page."""
    return f"# `{path.relative_to(ROOT).as_posix()}`\n\n```python\n{path.read_text(encoding='utf-8')}```\n"


def _target(page: str, folder: Path, target: str, anchor: str) -> str:
    """Return a link as the site needs it: to a page, or else to a copy of the file."""
    path = _file(folder, target)
    here = (DOCS / page).parent
    if path.suffix in (".md", ".py") and (DOCS / f"{_page_of(path)}.md").is_file():
        return os.path.relpath(DOCS / f"{_page_of(path)}.md", here) + anchor
    return f"path:{os.path.relpath(path, here)}" if path.suffix not in (".svg", ".png") else os.path.relpath(path, here)


def _menu(caption: str, names: list[str]) -> str:
    pages = [name.replace("*", "index") for name in names]
    return _toctree([page for page in pages if (DOCS / f"{page}.md").is_file()], caption)


def _toctree(pages: list[str], caption: str = "") -> str:
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return "\n\n```{toctree}\n" + options + "\n" + "\n".join(pages) + "\n```\n"
