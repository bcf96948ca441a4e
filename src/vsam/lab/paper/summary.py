"""The verdicts of all runs in short: a tally, and one line per claim."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from vsam.lab.paper.claims import judge
from vsam.lab.paper.verdicts import COLOURS, Decision, Verdict
from vsam.lab.study.write import read_studies

__all__ = ["LEGEND", "ClaimSummary", "Summary", "Word", "claims_in", "summarise", "to_lines"]

Word = Decision | Literal["mixed"]
_WORDS: tuple[Word, ...] = ("supported", "mixed", "not supported", "contradicted", "undecided", "not run")
LEGEND = (
    "supported: the whole 95 % interval over seeds agrees. mixed: it depends on the setting. not supported: an effect "
    "of the size claimed is excluded. contradicted: the whole interval says the opposite. undecided: the interval "
    "leaves it open, there are fewer than 3 seeds, or the runs are tiny."
)


@dataclass(frozen=True)
class ClaimSummary:
    """What all settings together say about one claim.

    Args:
        claim: in a sentence.
        verdict: the one on which all settings that decide it agree, else `mixed`; `undecided` where none decides it.
        num_supported: settings that support it.
        num_run: settings in which it was run.
        verdicts: one per setting.
    """

    claim: str
    verdict: Word
    num_supported: int
    num_run: int
    verdicts: tuple[Verdict, ...]

    def to_dict(self) -> dict[str, Any]:
        """In plain types."""
        counts = {"supported": self.num_supported, "run": self.num_run}
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "settings": counts,
            "verdicts": [verdict.to_dict() for verdict in self.verdicts],
        }


@dataclass(frozen=True)
class Summary:
    """All claims of the paper, in its order."""

    claims: tuple[ClaimSummary, ...]

    @property
    def counts(self) -> dict[Word, int]:
        """How many claims got each verdict; those that none got are left out."""
        found = Counter(one.verdict for one in self.claims)
        return {word: found[word] for word in _WORDS if found[word]}

    @property
    def tally(self) -> str:
        """The counts in a sentence."""
        counts = ", ".join(f"{count} {word}" for word, count in self.counts.items())
        return f"{len(self.claims)} claims of the paper, judged by our runs: {counts}."

    def to_dict(self) -> dict[str, Any]:
        """In plain types."""
        return {"tally": self.counts, "claims": [one.to_dict() for one in self.claims]}


def claims_in(folder: Path) -> Summary | None:
    """The paper's claims, judged by the studies in a folder; None where it holds none."""
    studies = read_studies(folder)
    return summarise(judge(studies)) if studies else None


def summarise(verdicts: Sequence[Verdict]) -> Summary:
    """Gather the verdicts of each claim; `judge` gives them."""
    claims = dict.fromkeys(verdict.claim for verdict in verdicts)
    return Summary(tuple(_summarise(claim, [one for one in verdicts if one.claim == claim]) for claim in claims))


def _summarise(claim: str, verdicts: Sequence[Verdict]) -> ClaimSummary:
    run = [one.verdict for one in verdicts if one.verdict != "not run"]
    decided = set(run) - {"undecided"}
    word: Word = "mixed" if len(decided) > 1 else next(iter(decided), "undecided" if run else "not run")
    return ClaimSummary(claim, word, run.count("supported"), len(run), tuple(verdicts))


def to_lines(summary: Summary) -> Table:
    """A line per claim for a terminal."""
    table = Table(box=None, pad_edge=False)
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim")
    table.add_column("supported in", no_wrap=True, justify="right")
    for one in summary.claims:
        settings = f"{one.num_supported} of {one.num_run}" if one.num_run else "–"
        table.add_row(Text(one.verdict, style=COLOURS.get(one.verdict, "")), Text(one.claim.rstrip(".")), settings)
    return table
