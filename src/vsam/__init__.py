"""vsam: sharpness-aware training at a price that you choose.

Names are imported when they are first used: `import vsam` alone does not import torch.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from vsam.version import __version__ as __version__

if TYPE_CHECKING:
    from vsam import amp, between, distributed, quantize, sharpness, trajectory, when, where
    from vsam.between import Decayed, Displaced, Orthogonal, Plain, SurrogateGap, Weighted
    from vsam.methods import AESAM, ASAM, ESAM, GSAM, MSAM, SAM, VSAM, WSAM, FriendlySAM, LookSAM
    from vsam.names import create, list_methods
    from vsam.optimizer import SharpnessAware
    from vsam.parts import Between, DecidesAfter, DecidesBefore, KnowsBefore, When, Where
    from vsam.records import Sample, StepRecord
    from vsam.trajectory import MESALoss, SAFLoss
    from vsam.when import Always, Bernoulli, Even, Every, GradientThreshold, ReleasedVariation, Tail, Variation
    from vsam.where import AdaptiveNorm, Friendly, GlobalNorm, Momentum, PartOfBatch, RandomSubset

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


_MODULES = ("amp", "between", "distributed", "quantize", "sharpness", "trajectory", "when", "where")
_HOMES = ("methods", "names", "optimizer", "parts", "records", "trajectory", "when", "where", "between")


def __getattr__(name: str) -> object:
    """Import a public name on first use, and bind the names that were imported along with it."""
    if name in _MODULES:
        return importlib.import_module(f"vsam.{name}")
    if name in __all__:
        found = _home(name)
        for home in _HOMES:
            module = sys.modules.get(f"vsam.{home}")
            names = [one for one in getattr(module, "__all__", ()) if one in __all__ and hasattr(module, one)]
            globals().update({one: getattr(module, one) for one in names})
        return getattr(found, name)
    raise AttributeError(f"module 'vsam' has no attribute {name!r}")


def _home(name: str) -> ModuleType:
    homes = (importlib.import_module(f"vsam.{home}") for home in _HOMES)
    return next(home for home in homes if name in home.__all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
