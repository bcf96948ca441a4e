"""The paper's claims on the page: what the studies in the reported folders say of each."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from vsam.lab.errors import UserError
from vsam.lab.paper.claims import judge
from vsam.lab.paper.verdicts import Decision, Verdict
from vsam.lab.study.write import read_studies

__all__ = ["Judged", "judge_folders"]

_DECISIONS: tuple[str, ...] = get_args(Decision)
_NOT_RUN: Decision = "not run"


@dataclass(frozen=True)
class Judged:
    """The verdicts that follow from the studies of a folder.

    Args:
        folder: that holds the studies.
        claims: each with its verdicts, one for each group of runs that speaks to it.
        missing: claims that no run speaks to.
    """

    folder: Path
    claims: dict[str, list[Verdict]]
    missing: list[str]

    @property
    def tally(self) -> str:
        """How often each verdict was reached, in a sentence."""
        every = [verdict for verdicts in self.claims.values() for verdict in verdicts]
        missing = f" Not run: {len(self.missing)} claims." if self.missing else ""
        return f"{len(self.claims)} claims, judged {len(every)} times: {self.count(every)}.{missing}"

    def count(self, verdicts: Iterable[Verdict]) -> str:
        """How many verdicts are of each kind."""
        counts = Counter(verdict.verdict for verdict in verdicts)
        return ", ".join(f"{counts[word]} {word}" for word in _DECISIONS if counts[word])  # type: ignore[index]


def judge_folders(folders: Sequence[Path]) -> tuple[list[Judged], list[str]]:
    """The verdicts of every folder that holds studies, and what is wrong with those that cannot be read."""
    found: list[Judged] = []
    problems: list[str] = []
    for folder in folders:
        try:
            verdicts = judge(studies) if (studies := read_studies(folder)) else []
        except UserError as error:
            problems.append(str(error))
            continue
        claims: dict[str, list[Verdict]] = {}
        for verdict in verdicts:
            if verdict.verdict != _NOT_RUN:
                claims.setdefault(verdict.claim, []).append(verdict)
        if claims:
            missing = dict.fromkeys(verdict.claim for verdict in verdicts if verdict.claim not in claims)
            found.append(Judged(folder, claims, list(missing)))
    return found, problems
