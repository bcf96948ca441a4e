"""What a method costs beyond its passes: timed beside its peers, counted exactly, and its memory measured."""

from vsam.lab.bench.counts import Counts, count_calls, count_operators, count_steps, typical
from vsam.lab.bench.measure import Plan, Report, run

__all__ = ["Counts", "Plan", "Report", "count_calls", "count_operators", "count_steps", "run", "typical"]
