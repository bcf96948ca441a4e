"""The benchmark: timing, counts and memory of every chosen method, as one report."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from vsam.lab.bench.bases import BASES, Base
from vsam.lab.bench.contestants import OURS, Entry, Plain
from vsam.lab.bench.counts import Counts, count_step, count_steps, typical
from vsam.lab.bench.memory import HUGE, USUAL, Memory, Size, beyond, check_room, is_measurable, measure_memory
from vsam.lab.bench.peers import PEERS, peers_version, why_without_peers
from vsam.lab.bench.results import Row, make_rows
from vsam.lab.bench.timing import single_thread, time_rounds
from vsam.lab.bench.workloads import WORKLOADS, Workload
from vsam.lab.errors import UserError
from vsam.lab.runs.environment import describe_environment

__all__ = ["Counted", "Plan", "Progress", "Report", "run"]

Progress = Callable[[str, int, int], None]
"""Called with what is measured, the total number of units, and how many are done."""

HUGE_METHODS = ("sam", "vsam", "peer-sam", "peer-sam-foreach")


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Args:
        workloads: by name.
        bases: by name.
        methods: by name; None for all that are installed.
        rounds: maximum per workload and base.
        seconds: per workload and base, after which no round starts.
        memory: whether to measure memory.
        huge: whether to measure it also with one tensor of 500 million weights.
    """

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    bases: tuple[str, ...] = ("sgd", "sgd-fused")
    methods: tuple[str, ...] | None = None
    rounds: int = 200
    seconds: float = 120.0
    memory: bool = True
    huge: bool = False


@dataclass(frozen=True)
class Counted:
    """The counts of a method's typical step of one kind, and how much it adds to its passes and the base's step."""

    workload: str
    base: str
    method: str
    label: str
    counts: Counts
    added: Counts | None

    @property
    def kind(self) -> str:
        """Sampled or plain."""
        return "sampled" if self.counts.sampled else "plain"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "kind": self.kind}


def _facts() -> dict[str, Any]:
    """Versions, hardware and commit; everything is timed on one thread."""
    return {**describe_environment(torch.device("cpu")), "threads": 1, "pytorch_optimizer": peers_version()}


@dataclass
class Report:
    """What was measured, where, and what was left out."""

    plan: Plan
    facts: dict[str, Any] = field(default_factory=_facts)
    rows: list[Row] = field(default_factory=list)
    counts: list[Counted] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_complete: bool = True

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "plan": asdict(self.plan),
            "rows": [row.to_dict() for row in self.rows],
            "counts": [one.to_dict() for one in self.counts],
            "memory": [one.to_dict() for one in self.memory],
            "notes": self.notes,
            "is_complete": self.is_complete,
        }


def run(plan: Plan, progress: Progress = lambda task, total, done: None) -> Report:
    """Measure everything in the plan; peers are left out if pytorch_optimizer is not installed.

    If interrupted, returns what was measured so far, marked as incomplete.
    """
    report = Report(plan)
    entries = _entries(plan, report)
    if plan.huge:
        check_room(HUGE)
    try:
        _measure(entries, report, progress)
    except KeyboardInterrupt:
        report.is_complete = False
        report.notes.append("Interrupted: the rest was not measured.")
    return report


def _measure(entries: Sequence[Entry], report: Report, progress: Progress) -> None:
    plan = report.plan
    for workload in (WORKLOADS[name] for name in plan.workloads):
        for base in (BASES[name] for name in plan.bases):
            own = [entry for entry in entries if not (entry.refuses_fused and base.is_fused)]
            where = f"{workload.name}, {base.name}"
            timed = partial(progress, f"{where}: timing", plan.rounds)
            turns = time_rounds(workload, base, own, plan.rounds, plan.seconds, timed)
            rows = make_rows(workload.name, base.name, own, turns)
            report.rows += rows
            report.notes += _unranked(rows)
            report.counts += _count(workload, base, own, partial(progress, f"{where}: counting", len(own)))
    if plan.memory:
        _measure_memory(entries, report, USUAL, progress)
    if plan.huge:
        _measure_memory([entry for entry in entries if entry.name in HUGE_METHODS], report, HUGE, progress)


def _entries(plan: Plan, report: Report) -> list[Entry]:
    entries = [entry for entry in (*OURS, *PEERS) if plan.methods is None or entry.name in plan.methods]
    reason = why_without_peers()
    if reason is None or not any(entry.is_peer for entry in entries):
        return entries
    ours = [entry for entry in entries if not entry.is_peer]
    if not ours:
        raise UserError(f"{reason} No other method was chosen with --methods.")
    report.notes.append(reason)
    return ours


def _unranked(rows: Sequence[Row]) -> list[str]:
    """A sentence that names the methods that noise hides from the best peer, if any."""
    names = [
        f"{row.label} ({row.kind})"
        for row in rows
        if row.to_peer is not None and not row.to_peer.is_unit and not row.to_peer.is_ranked
    ]
    where = f"{rows[0].workload}, {rows[0].base}" if rows else ""
    return [f"{where}: too noisy to rank against the best peer by added time: {', '.join(names)}."] if names else []


def _count(workload: Workload, base: Base, entries: Sequence[Entry], advance: Callable[[int], None]) -> list[Counted]:
    found = []
    references: dict[str, tuple[Counts, Counts]] = {}
    advance(0)
    with single_thread():
        for number, entry in enumerate(entries):
            own = entry.base_of(base)
            if own.name not in references:
                references[own.name] = _count_reference(workload, own)
            steps = count_steps(partial(_build, entry, workload, own), num_steps=6)
            for kind in (True, False):
                counts = typical(steps, kind)
                if counts is not None and entry.keeps in (None, kind):
                    added = counts.beyond(entry.passes[kind], *references[own.name]) if entry.passes else None
                    found.append(Counted(workload.name, base.name, entry.name, entry.label, counts, added))
            advance(number + 1)
    return found


def _build(entry: Entry, workload: Workload, base: Base) -> Any:
    return entry.make(workload.build(), base)


def _count_reference(workload: Workload, base: Base) -> tuple[Counts, Counts]:
    """The counts of a pass and of the base's own step."""
    one, other = Plain(workload.build(), base), Plain(workload.build(), base)
    for _ in range(2):
        one.step()
        other.step()
    return count_step(one.take_pass, other.take_pass), count_step(one.optimizer.step, other.optimizer.step)


def _measure_memory(entries: Sequence[Entry], report: Report, size: Size, progress: Progress) -> None:
    if not is_measurable():
        report.notes.append("Memory was not measured: it is read from /proc/self/status, which exists only on Linux.")
        return
    # An unfused base: tensor sizes do not depend on it, and every method runs with it.
    base = next((name for name in report.plan.bases if not BASES[name].is_fused), "sgd")
    names = list(dict.fromkeys(entry.name for entry in entries if entry.name != "sgd"))
    advance = partial(progress, f"memory, {size.rows * size.columns:,} weights", len(names) + 1)
    advance(0)
    alone = measure_memory("sgd", base, size)
    for number, name in enumerate(names):
        advance(number + 1)
        report.memory.append(beyond(name, measure_memory(name, base, size), alone))
    advance(len(names) + 1)
