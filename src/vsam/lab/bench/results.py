"""The results of the turns: one row per method and kind of step, with goals and whether they are met."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vsam.lab.bench.contestants import Entry
from vsam.lab.bench.peers import PEER_SAMS
from vsam.lab.bench.statistics import Interval, Spread, ratio_interval, spread
from vsam.lab.bench.timing import Turn

__all__ = ["GOALS", "Ratio", "Row", "make_rows"]

GOALS: dict[tuple[str, str, str], float] = {
    ("mlp", "sam", "sampled"): 0.5,
    ("transformer", "sam", "sampled"): 0.5,
    ("mlp", "vsam", "sampled"): 0.8,
    ("transformer", "vsam", "sampled"): 0.8,
    ("mlp", "vsam", "plain"): 1.10,
    ("transformer", "vsam", "plain"): 1.05,
}
"""With SGD as base: what a sampled step adds, best peer = 1; a whole plain step, base alone = 1."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of two medians and its 95 % interval, None if the divisor is lost in noise.

    Args:
        value: the ratio.
        interval: of the value.
        is_unit: whether it is the divisor itself.
    """

    value: float
    interval: Interval | None
    is_unit: bool = False

    @property
    def is_ranked(self) -> bool:
        """Whether the two differ beyond the noise."""
        return self.interval is not None and not self.interval[0] <= 1 <= self.interval[1]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"value": self.value, "interval": self.interval, "ranked": self.is_ranked}


@dataclass(frozen=True)
class Row:
    """One method's steps of one kind on one workload with one base; times in seconds.

    Args:
        workload, base, method, label: who and where.
        kind: sampled or plain.
        is_peer: whether it is from pytorch_optimizer.
        passes: gradient passes per step, None if they are not like SGD's.
        num_turns: how many turns the medians are over.
        step: the whole step.
        to_base: the whole step, base alone = 1.
        added: beyond its passes and the base's own step.
        to_peer: the same, best SAM of pytorch_optimizer = 1.
    """

    workload: str
    base: str
    method: str
    label: str
    kind: str
    is_peer: bool
    passes: int | None
    num_turns: int
    step: Spread
    to_base: Spread
    added: Spread | None
    to_peer: Ratio | None

    @property
    def goal(self) -> float | None:
        """The upper bound that was set for it, if any."""
        return GOALS.get((self.workload, self.method, self.kind)) if self.base.startswith("sgd") else None

    @property
    def verdict(self) -> str | None:
        """Whether the goal is met, missed, or open because of noise."""
        if self.goal is None:
            return None
        if self.kind == "sampled" and self.to_peer is None:
            return None
        interval = self.to_base.interval if self.to_peer is None or self.kind == "plain" else self.to_peer.interval
        if interval is None:
            return "open"
        return "met" if interval[1] <= self.goal else "missed" if interval[0] > self.goal else "open"

    def to_dict(self) -> dict[str, Any]:
        """For JSON; times in milliseconds."""
        plain = ("workload", "base", "method", "label", "kind", "is_peer", "passes", "num_turns", "goal", "verdict")
        return {
            **{name: getattr(self, name) for name in plain},
            "step_ms": self.step.to_dict(1e3),
            "to_base": self.to_base.to_dict(),
            "added_ms": None if self.added is None else self.added.to_dict(1e3),
            "added_to_best_peer": None if self.to_peer is None else self.to_peer.to_dict(),
        }


def make_rows(workload: str, base: str, entries: Sequence[Entry], turns: Sequence[Sequence[Turn]]) -> list[Row]:
    """A row for each entry and kind of step that occurred at least twice."""
    groups = [
        (entry, kind, own)
        for entry, taken in zip(entries, turns, strict=True)
        for kind in (True, False)
        if entry.keeps in (None, kind) and len(own := [turn for turn in taken if turn.sampled is kind]) > 1
    ]
    best = _best_peer(groups)
    return [_row(workload, base, entry, kind, own, best) for entry, kind, own in groups]


_Group = tuple[Entry, bool, list[Turn]]


def _added(entry: Entry, kind: bool, turns: Sequence[Turn]) -> list[float] | None:
    """In seconds, at the machine's median speed."""
    if entry.passes is None:
        return None
    unit = median(turn.reference for turn in turns)
    return [unit * turn.added(entry.passes[kind]) for turn in turns]


def _best_peer(groups: Sequence[_Group]) -> tuple[str, list[float]] | None:
    """Its name, and what it adds."""
    found = [(group[0].name, _added(*group)) for group in groups if group[0].name in PEER_SAMS]
    return min(((name, added) for name, added in found if added), key=lambda peer: median(peer[1]), default=None)


def _row(
    workload: str, base: str, entry: Entry, kind: bool, turns: Sequence[Turn], best: tuple[str, list[float]] | None
) -> Row:
    added = _added(entry, kind, turns)
    to_peer = None
    if added and best and entry.name != "sgd":
        name, unit = best
        to_peer = Ratio(median(added) / median(unit), ratio_interval(added, unit), is_unit=entry.name == name)
    return Row(
        workload=workload,
        base=base,
        method=entry.name,
        label=entry.label,
        kind="sampled" if kind else "plain",
        is_peer=entry.is_peer,
        passes=entry.passes[kind] if entry.passes else None,
        num_turns=len(turns),
        step=spread([turn.step for turn in turns]),
        to_base=spread([turn.to_base for turn in turns]),
        added=spread(added) if added else None,
        to_peer=to_peer,
    )
