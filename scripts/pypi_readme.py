"""Add the repository's address to packages: links to it, and absolute links in the README, which PyPI needs.

Its address is `repository` of [tool.hatch.metadata.hooks.custom] in pyproject.toml. While that is empty, the README is
taken as it is, and there are no links.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[(?:[^\]`]|`[^`]*`)*\]\()(?!https?://|mailto:|#)([^)\s]+)(?=\))")


def readme(root: Path, repository: str) -> str:
    """The text, with absolute links where the repository is known."""
    text = (root / "README.md").read_text(encoding="utf-8")

    def absolute(link: re.Match[str]) -> str:
        name = link[3]
        kind = "raw" if link[1] else "tree" if (root / name.split("#")[0]).is_dir() else "blob"
        return f"{link[1]}{link[2]}{repository}/{kind}/main/{name}"

    return LINK.sub(absolute, text) if repository else text


def urls(repository: str) -> dict[str, str]:
    """The links that PyPI shows beside the text."""
    if not repository:
        return {}
    return {
        "Repository": repository,
        "Documentation": f"{repository}/tree/main/docs",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
    }


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config.get("repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(Path(self.root), repository)}
        metadata["urls"] = urls(repository)
