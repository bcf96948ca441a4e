"""The pages, and what is on them: fenced blocks, links, anchors, pictures."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PAGES", "ROOT", "Block", "anchors", "blocks", "links", "prose", "sides"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    name
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md")),
    )
    if not name.startswith(("docs/_build/", "docs/files/"))
]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(!?)\[(?:[^\]`]|`[^`]*`)*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        page: the file, from the root of the repository.
        line: where its content begins.
        language: the word after the fence, or empty.
        text: its content.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, *languages: str) -> list[Block]:
    """The fenced blocks of a page, all of them or those in some languages."""
    found = [(match, _text(page)[: match.start(2)].count("\n") + 1) for match in _FENCE.finditer(_text(page))]
    return [Block(page, line, m[1], m[2]) for m, line in found if not languages or m[1] in languages]


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", _text(page))


def sides(diff: str) -> tuple[str, str]:
    """The script before and after."""
    before, after = ("\n".join(line[1:] for line in diff.splitlines() if line[:1] in (sign, " ", "")) for sign in "-+")
    return before, after


def links(page: str, *, pictures: bool = False) -> list[str]:
    """The targets of a page's links, or of its pictures."""
    return [target for sign, target in _LINK.findall(prose(page)) if bool(sign) == pictures]


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: dict[str, int] = {}
    for title in re.findall(r"^#{1,6} (.+)$", prose(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {slug if i == 0 else f"{slug}-{i}" for slug, count in found.items() for i in range(count + 1)}
