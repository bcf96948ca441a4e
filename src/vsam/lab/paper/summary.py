"""The verdicts in short: a tally, and one line per claim."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from vsam.lab.errors import UserError
from vsam.lab.paper.claims import judge
from vsam.lab.paper.verdicts import COLOURS, Decision, Verdict
from vsam.lab.study.write import read_studies

__all__ = ["LEGEND", "ClaimSummary", "Summary", "Word", "claims_in", "judge_folders", "summarise", "to_lines"]

Word = Decision | Literal["mixed"]
_WORDS: tuple[Word, ...] = ("supported", "mixed", "not supported", "contradicted", "undecided", "not run")
LEGEND = (
    "for, against, open: settings whose 95 % interval over seeds agrees with the claim, excludes it, or does neither "
    "(e.g. fewer than 3 seeds, or tiny runs). supported: most settings are for it. contradicted: most say the "
    "opposite. not supported: most are against it, or some are and none is for it. mixed: some are for it, but not "
    "most. undecided: all leave it open."
)


@dataclass(frozen=True)
class ClaimSummary:
    """What all settings together say about one claim.

    Args:
        claim: in a sentence.
        verdict: that of more than half of the settings in which it was run, else `mixed` if some support it, `not
            supported` if some are against it and none supports it, `undecided` if none decides it.
        num_for: settings that support it.
        num_against: settings that fail to support it, or contradict it.
        num_open: settings that leave it undecided.
        verdicts: one per setting.
    """

    claim: str
    verdict: Word
    num_for: int
    num_against: int
    num_open: int
    verdicts: tuple[Verdict, ...]

    def to_dict(self) -> dict[str, Any]:
        """In plain types."""
        counts = {"for": self.num_for, "against": self.num_against, "open": self.num_open}
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "settings": counts,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
        }


@dataclass(frozen=True)
class Summary:
    """All claims of the paper, in its order."""

    claims: tuple[ClaimSummary, ...]

    @property
    def counts(self) -> dict[Word, int]:
        """How many claims got each verdict; verdicts without claims are left out."""
        found = Counter(one.verdict for one in self.claims)
        return {word: found[word] for word in _WORDS if found[word]}

    @property
    def tally(self) -> str:
        """The counts in one sentence."""
        counts = ", ".join(f"{count} {word}" for word, count in self.counts.items())
        return f"{len(self.claims)} claims of the paper, judged by our runs: {counts}."

    def to_dict(self) -> dict[str, Any]:
        """In plain types."""
        return {"tally": self.counts, "claims": [one.to_dict() for one in self.claims]}


def claims_in(folder: Path) -> Summary | None:
    """The paper's claims, judged by the studies in a folder; None if it has none."""
    studies = read_studies(folder)
    return summarise(judge(studies)) if studies else None


def judge_folders(folders: Sequence[Path]) -> tuple[list[tuple[Path, Summary]], list[str]]:
    """The verdicts for every folder with studies, and what is wrong with those that cannot be read."""
    found: list[tuple[Path, Summary]] = []
    problems: list[str] = []
    for folder in folders:
        try:
            summary = claims_in(folder)
        except UserError as error:
            problems.append(str(error))
        else:
            found += [(folder, summary)] if summary is not None else []
    return found, problems


def summarise(verdicts: Sequence[Verdict]) -> Summary:
    """Group the verdicts of `judge` by claim."""
    claims = dict.fromkeys(verdict.claim for verdict in verdicts)
    return Summary(tuple(_summarise(claim, [one for one in verdicts if one.claim == claim]) for claim in claims))


def _summarise(claim: str, verdicts: Sequence[Verdict]) -> ClaimSummary:
    run = [one.verdict for one in verdicts if one.verdict != "not run"]
    num_for, num_open = run.count("supported"), run.count("undecided")
    num_against = len(run) - num_for - num_open
    return ClaimSummary(claim, _word(run), num_for, num_against, num_open, tuple(verdicts))


def _word(run: Sequence[Decision]) -> Word:
    if not run or set(run) == {"undecided"}:
        return "undecided" if run else "not run"
    num_for, num_open = run.count("supported"), run.count("undecided")
    if 2 * num_for > len(run):
        return "supported"
    if 2 * run.count("contradicted") > len(run):
        return "contradicted"
    return "mixed" if num_for and 2 * (len(run) - num_for - num_open) <= len(run) else "not supported"


def to_lines(summary: Summary) -> Table:
    """A line per claim for a terminal."""
    table = Table(box=None, pad_edge=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim")
    for heading in ("for", "against", "open"):
        table.add_column(heading, no_wrap=True, justify="right")
    for one in summary.claims:
        counts = map(str, (one.num_for, one.num_against, one.num_open))
        table.add_row(Text(one.verdict, style=COLOURS.get(one.verdict, "")), Text(one.claim.rstrip(".")), *counts)
    return table
