"""Links lead to files and headings that exist, pictures have their command beside them, and PyPI can follow links."""

import importlib.util
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pages.read import PAGES, ROOT, anchors, links, prose

OUTSIDE = ("http://", "https://", "mailto:")
COMMAND = re.compile(r"`(?:vsam|python|make) [^`]+`")
TITLE = re.compile(r"^#{1,6} ", re.MULTILINE)


@pytest.mark.parametrize(
    "page", [*PAGES, *(p.relative_to(ROOT).as_posix() for p in sorted(ROOT.glob("benchmarks/**/*.md")))]
)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for target in links(page) + links(page, pictures=True):
        if target.startswith(OUTSIDE):
            continue
        name, _, anchor = target.partition("#")
        path = Path(os.path.normpath((ROOT / page).parent / name)) if name else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        assert path.is_relative_to(ROOT), f"{page} links out of the repository: {target}"
        if anchor:
            known = anchors(path.relative_to(ROOT).as_posix())
            assert anchor in known, f"{page} links to {target}, which has {sorted(known)}"


@pytest.mark.parametrize("page", PAGES)
def test_the_command_that_makes_a_picture_is_in_its_section(page: str) -> None:
    for section in TITLE.split(prose(page)):
        if re.search(r"!\[[^\]]*\]\((?!https?:)", section):
            assert COMMAND.search(section), f"{page}: no command beside the picture below {section.splitlines()[0]!r}"


DOORS = ("docs/index.md", "docs/guide.md", "docs/lab.md")


def listed(index: str) -> set[str]:
    return {os.path.normpath(os.path.join(os.path.dirname(index), target.split("#")[0])) for target in links(index)}


def test_every_page_is_listed_behind_a_door_or_on_its_folder() -> None:
    for page in PAGES:
        if page.startswith("docs/") and page != "docs/index.md":
            folder = os.path.dirname(page)
            is_inside = folder != "docs" and not page.endswith("/index.md")
            indexes = (f"{folder}/index.md",) if is_inside else DOORS
            assert any(page in listed(index) for index in indexes), f"{' or '.join(indexes)} should list {page}"


def test_a_wrong_link_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages.read.ROOT", tmp_path)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "page.md").write_text("# A title, twice\n\n[here](#a-title-twice) [there](other.md#none)\n")
    (tmp_path / "other.md").write_text("# Other\n")
    assert anchors("page.md") == {"a-title-twice"}
    with pytest.raises(AssertionError, match=r"page\.md links to other\.md#none"):
        test_links_lead_to_files_and_headings("page.md")


@pytest.mark.parametrize("repository", ["", "https://example.org/vsam"])
def test_the_readmes_links_are_absolute_where_it_is_built_once_the_repository_is_known(repository: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "readme" in project["project"]["dynamic"]
    hook = _load(ROOT / "scripts" / "pypi_readme.py")
    text = hook.readme(ROOT, repository)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 20
    if not repository:
        assert text == (ROOT / "README.md").read_text(encoding="utf-8")
        return
    assert f"]({repository}/raw/main/docs/figures/" in text, "a page of a picture is no picture"
    for target in targets:
        assert target.startswith(("https://", "#")), target
        if target.startswith(f"{repository}/"):
            kind, _, name = target.removeprefix(f"{repository}/").split("#")[0].partition("/main/")
            assert kind in ("blob", "raw", "tree")
            assert (ROOT / name).is_dir() if kind == "tree" else (ROOT / name).is_file(), target


def test_a_package_has_links_once_the_repository_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "urls" in project["project"]["dynamic"]
    repository = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    assert re.fullmatch(r"|https://\S+[^/\s]", repository), "links are made of it: no slash at the end"
    hook = _load(ROOT / "scripts" / "pypi_readme.py")
    assert hook.urls("") == {}
    links = hook.urls("https://example.org/vsam")
    assert links.pop("Repository") == "https://example.org/vsam"
    assert links
    for target in links.values():
        assert (ROOT / target.removeprefix("https://example.org/vsam/").partition("/main/")[2]).exists(), target


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
