"""Every table and figure of the paper as a study: planned, run, collected and drawn."""

from vsam.lab.study.plan import STUDIES
from vsam.lab.study.run import run_study

__all__ = ["STUDIES", "run_study"]
