"""One run on several processes: how they join, and what they share."""

from vsam.lab.ranks.batch_norm import synchronise
from vsam.lab.ranks.ranks import ALONE, Ranks

__all__ = ["ALONE", "Ranks", "synchronise"]
