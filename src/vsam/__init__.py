"""vsam: sharpness-aware training at nearly the price of SGD."""

from vsam import amp, between, distributed, quantize, trajectory, when, where
from vsam.between import Decayed, Orthogonal, Plain
from vsam.methods import AESAM, ASAM, ESAM, SAM, VSAM, LookSAM
from vsam.optimizer import SharpnessAware
from vsam.parts import Between, DecidesAfter, DecidesBefore, When, Where
from vsam.records import Sample, StepRecord
from vsam.trajectory import MESALoss, SAFLoss
from vsam.version import __version__ as __version__
from vsam.when import Always, Every, GradientThreshold, ReleasedVariation, Variation
from vsam.where import AdaptiveNorm, GlobalNorm, RandomSubset

__all__ = [
    "AESAM",
    "ASAM",
    "ESAM",
    "SAM",
    "VSAM",
    "AdaptiveNorm",
    "Always",
    "Between",
    "Decayed",
    "DecidesAfter",
    "DecidesBefore",
    "Every",
    "GlobalNorm",
    "GradientThreshold",
    "LookSAM",
    "MESALoss",
    "Orthogonal",
    "Plain",
    "RandomSubset",
    "ReleasedVariation",
    "SAFLoss",
    "Sample",
    "SharpnessAware",
    "StepRecord",
    "Variation",
    "When",
    "Where",
    "amp",
    "between",
    "distributed",
    "quantize",
    "trajectory",
    "when",
    "where",
]
