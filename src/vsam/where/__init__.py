"""Parts that decide where the second gradient is taken."""

from vsam.where.adaptive_momentum import AdaptiveMomentum
from vsam.where.adaptive_norm import AdaptiveNorm
from vsam.where.friendly import Friendly
from vsam.where.global_norm import GlobalNorm
from vsam.where.momentum import Momentum
from vsam.where.part_of_batch import PartOfBatch
from vsam.where.random_subset import RandomSubset

__all__ = ["AdaptiveMomentum", "AdaptiveNorm", "Friendly", "GlobalNorm", "Momentum", "PartOfBatch", "RandomSubset"]
