"""Verdicts on claims: the rules that decide from an interval, and the tables that show them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from vsam.lab.comparison.tables import markdown_table
from vsam.lab.paper.intervals import Interval
from vsam.lab.text import for_markdown

__all__ = [
    "COLOURS",
    "FEWEST_SEEDS",
    "Decision",
    "Rule",
    "Verdict",
    "about",
    "decide",
    "more",
    "to_markdown",
    "to_terminal",
]

Decision = Literal["supported", "not supported", "contradicted", "undecided", "not run"]
Rule = Callable[[Interval], Decision]

FEWEST_SEEDS = 3
"""With fewer, nothing is decided, whatever the numbers."""

_SCALES = {
    "tiny": "tiny: seconds, tests the program",
    "small": "small: a small network on few images, not the paper's setting",
    "paper": "paper: the paper's setting",
}
COLOURS: dict[str, str] = {"supported": "green", "contradicted": "red", "not supported": "yellow"}
"""The verdicts' colours on a terminal."""
_NOTE = (
    "Intervals are 95 % over seeds (Student's t), paired by seed where seeds are shared. Every group is judged "
    "separately, and one interval in twenty may miss. Numbers in the column 'paper' are the paper's, never ours. Not "
    "judged: that γ hardly changes the speed, because no margin was fixed for it; and Lemma 2, whose bound grows with "
    "T, so that every run agrees with it (vsam study convergence measures what it bounds)."
)


@dataclass(frozen=True)
class Verdict:
    """The verdict of one group of runs on a claim.

    Args:
        claim: in a sentence.
        group: the runs it was judged on, by name.
        scale: tiny, small or paper; empty if it was not run.
        paper: the paper's number, marked as the paper's.
        effect: ours, with its interval over seeds, if any.
        unit: of the effect.
        verdict: one of five words.
        reason: why.
    """

    claim: str
    group: str
    scale: str
    paper: str
    effect: Interval | None
    unit: str
    verdict: Decision
    reason: str

    @property
    def ours(self) -> str:
        """The effect in words, or a dash."""
        if self.effect is None:
            return "–"
        how = "paired seeds" if self.effect.is_paired else "seeds"
        ends = f"{self.effect.low:+.2f} to {self.effect.high:+.2f}"
        return f"{self.effect.mean:+.2f} ({ends}) {self.unit}, n = {self.effect.n} {how}"

    @property
    def where(self) -> str:
        """The group and the scale."""
        return f"{self.group}, {self.scale} scale" if self.scale else self.group


def more(margin: float | None) -> Rule:
    """The rule for "is larger": the whole interval decides, never the mean.

    supported: it is above 0 and reaches the margin. contradicted: it is below 0. not supported: it ends below the
    margin, which excludes an effect worth mentioning. Else undecided.

    Args:
        margin: the smallest effect worth mentioning, above 0; None if there is no yardstick for it.
    """

    def rule(found: Interval) -> Decision:
        if found.high < 0:
            return "contradicted"
        if margin is not None and found.high < margin:
            return "not supported"
        return "supported" if found.low > 0 else "undecided"

    return rule


def about(centre: float, margin: float | None, *, or_more: bool = False) -> Rule:
    """The rule for "is about": only an interval inside the margin is support; no significant difference is not.

    supported: it is within centre ± margin. contradicted: it is below that. not supported: it is above that, or below
    the centre but not within the margin. Else undecided.

    Args:
        centre: what is claimed.
        margin: what still counts as about, above 0 and fixed beforehand; None if there is no yardstick for it, and
            then nothing is supported.
        or_more: whether an interval above the margin supports the claim too.
    """

    def rule(found: Interval) -> Decision:
        if margin is not None:
            if centre - margin < found.low and found.high < centre + margin:
                return "supported"
            if found.high <= centre - margin:
                return "contradicted"
            if found.low >= centre + margin:
                return "supported" if or_more else "not supported"
        return "not supported" if found.high < centre else "undecided"

    return rule


def decide(rule: Rule, found: Interval | None, scale: str) -> tuple[Decision, str]:
    """Apply a rule, unless there is too little data; returns the decision and, if undecided for that, why.

    Fewer than three seeds, numbers without any spread (whose interval means nothing) and tiny runs decide nothing.
    """
    if found is None:
        return "undecided", "too few seeds for an interval"
    if found.n < FEWEST_SEEDS:
        return "undecided", f"{found.n} seeds, at least {FEWEST_SEEDS} are needed"
    if found.high - found.low <= 1e-9 * max(abs(found.mean), 1e-3):
        return "undecided", "no spread over seeds, so the interval means nothing"
    if scale == "tiny":
        return "undecided", "tiny runs test the program, not the claim"
    return rule(found), ""


def to_terminal(verdicts: Sequence[Verdict]) -> Table:
    """The table for a terminal; no text in it is parsed as markup."""
    caption = Text("\n".join([*_scales(verdicts), _NOTE]))
    table = Table(
        title="The paper's claims", title_justify="left", caption=caption, caption_justify="left", show_lines=True
    )
    for heading in ("claim", "paper", "ours, 95 % interval", "verdict"):
        table.add_column(heading)
    for verdict in verdicts:
        word = Text(verdict.verdict, style=COLOURS.get(verdict.verdict, ""))
        claim = Text(f"{verdict.claim}\n").append(verdict.where, style="dim")
        reason = Text(f"\n{verdict.reason}" if verdict.reason else "", style="dim")
        table.add_row(claim, Text(verdict.paper), Text(verdict.ours), word + reason)
    return table


def to_markdown(verdicts: Sequence[Verdict]) -> str:
    """A Markdown page: an overview, a table per claim, and notes on scales and intervals."""
    claims = {verdict.claim: [other for other in verdicts if other.claim == verdict.claim] for verdict in verdicts}
    notes = [*(f"{for_markdown(words)}\n" for words in _scales(verdicts)), f"{_NOTE}\n"]
    tables = [_table(claim, found) for claim, found in claims.items()]
    title = "# The paper's claims and our runs\n"
    return "\n".join([title, "## overview\n", _overview(claims), "## one by one\n", *tables, *notes])


def _scales(verdicts: Sequence[Verdict]) -> list[str]:
    """A sentence for each scale that was run."""
    known = dict.fromkeys(verdict.scale for verdict in verdicts if verdict.scale)
    return [f"Scale {_SCALES.get(scale, scale)}." for scale in known]


def _overview(claims: Mapping[str, Sequence[Verdict]]) -> str:
    """Which runs gave which verdict on each claim, by recipe; what was not run is left out."""
    words = ("supported", "not supported", "contradicted", "undecided")
    lines: list[Sequence[str]] = [("claim", *words)]
    for claim, verdicts in claims.items():
        names = {word: [_short(verdict) for verdict in verdicts if verdict.verdict == word] for word in words}
        lines.append((claim, *("; ".join(names[word]) for word in words)))
    return markdown_table([list(map(for_markdown, line)) for line in lines], left=len(lines[0]))


def _short(verdict: Verdict) -> str:
    """The group without its description in brackets."""
    return re.sub(r" \(.*?\)", "", verdict.group)


def _table(claim: str, verdicts: Sequence[Verdict]) -> str:
    lines: list[Sequence[str]] = [("run", "paper", "ours, 95 % interval", "verdict", "why")]
    for verdict in verdicts:
        paper = verdict.paper.removeprefix("paper: ")
        where, paper, ours, reason = map(for_markdown, (verdict.where, paper, verdict.ours, verdict.reason))
        lines.append((where, paper, ours, f"**{verdict.verdict}**", reason))
    return f"**{for_markdown(claim)}**\n\n{markdown_table(lines, left=len(lines[0]))}"
