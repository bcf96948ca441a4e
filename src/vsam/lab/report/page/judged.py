"""The paper's claims on the page: what the studies in the reported folders say of each."""

from collections.abc import Sequence
from pathlib import Path

from vsam.lab.errors import UserError
from vsam.lab.paper.summary import Summary, claims_in

__all__ = ["Judged", "judge_folders"]

Judged = tuple[Path, Summary]
"""A folder of studies, and what they say."""


def judge_folders(folders: Sequence[Path]) -> tuple[list[Judged], list[str]]:
    """The verdicts of every folder that holds studies, and what is wrong with those that cannot be read."""
    found: list[Judged] = []
    problems: list[str] = []
    for folder in folders:
        try:
            summary = claims_in(folder)
        except UserError as error:
            problems.append(str(error))
            continue
        if summary is not None:
            found.append((folder, summary))
    return found, problems
