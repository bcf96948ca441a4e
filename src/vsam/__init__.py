"""vsam: sharpness-aware training at nearly the price of SGD."""

import importlib
from typing import TYPE_CHECKING

from vsam import amp, between, distributed, quantize, trajectory, when, where
from vsam.between import Decayed, Displaced, Orthogonal, Plain, SurrogateGap, Weighted
from vsam.methods import AESAM, ASAM, ESAM, GSAM, MSAM, SAM, VSAM, WSAM, FriendlySAM, LookSAM
from vsam.names import create, list_methods
from vsam.optimizer import SharpnessAware
from vsam.parts import Between, DecidesAfter, DecidesBefore, KnowsBefore, When, Where
from vsam.records import Sample, StepRecord
from vsam.trajectory import MESALoss, SAFLoss
from vsam.version import __version__ as __version__
from vsam.when import Always, Bernoulli, Even, Every, GradientThreshold, ReleasedVariation, Tail, Variation
from vsam.where import AdaptiveNorm, Friendly, GlobalNorm, Momentum, PartOfBatch, RandomSubset

if TYPE_CHECKING:
    from vsam import sharpness

__all__ = [
    "AESAM",
    "ASAM",
    "ESAM",
    "GSAM",
    "MSAM",
    "SAM",
    "VSAM",
    "WSAM",
    "AdaptiveNorm",
    "Always",
    "Bernoulli",
    "Between",
    "Decayed",
    "DecidesAfter",
    "DecidesBefore",
    "Displaced",
    "Even",
    "Every",
    "Friendly",
    "FriendlySAM",
    "GlobalNorm",
    "GradientThreshold",
    "KnowsBefore",
    "LookSAM",
    "MESALoss",
    "Momentum",
    "Orthogonal",
    "PartOfBatch",
    "Plain",
    "RandomSubset",
    "ReleasedVariation",
    "SAFLoss",
    "Sample",
    "SharpnessAware",
    "StepRecord",
    "SurrogateGap",
    "Tail",
    "Variation",
    "Weighted",
    "When",
    "Where",
    "amp",
    "between",
    "create",
    "distributed",
    "list_methods",
    "quantize",
    "sharpness",
    "trajectory",
    "when",
    "where",
]


def __getattr__(name: str) -> object:
    """Import `vsam.sharpness` when it is first used: training does not need it."""
    if name == "sharpness":
        return importlib.import_module("vsam.sharpness")
    raise AttributeError(f"module 'vsam' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
