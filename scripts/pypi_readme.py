"""The README as it is built into packages: relative links, which PyPI cannot follow, become links to the repository.

Its address is `repository` of [tool.hatch.metadata.hooks.custom] in pyproject.toml; while that is empty, the README is
taken as it is.
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


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config.get("repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(Path(self.root), repository)}
