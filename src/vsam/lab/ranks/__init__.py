"""One run on several processes: who they are, what they share, and how they join."""

from vsam.lab.ranks.ranks import ALONE, Ranks

__all__ = ["ALONE", "Ranks"]
