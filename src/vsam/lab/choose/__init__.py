"""`vsam choose`: what each method would cost here, and which one fits a price."""

from vsam.lab.choose.advice import Advice, advise
from vsam.lab.choose.costs import Cost, list_costs
from vsam.lab.choose.timing import Times, time_passes

__all__ = ["Advice", "Cost", "Times", "advise", "list_costs", "time_passes"]
