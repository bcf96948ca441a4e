"""What a method costs beyond its passes: time next to its peers, exact counts, and memory."""

from vsam.lab.bench.counts import Counts, count_calls, count_operators, count_steps, typical
from vsam.lab.bench.measure import Plan, Report, run

__all__ = ["Counts", "Plan", "Report", "count_calls", "count_operators", "count_steps", "run", "typical"]
