"""vsam: sharpness-aware training at a cost that you choose.

Names are imported when they are first used. `import vsam` alone does not import torch.
"""

import importlib
from typing import TYPE_CHECKING

from vsam.version import __version__ as __version__

if TYPE_CHECKING:
    from vsam import amp, between, distributed, quantize, sharpness, trajectory, when, where
    from vsam._step.records import StepRecord
    from vsam.between import Decayed, Displaced, Orthogonal, Plain, SurrogateGap, Weighted
    from vsam.methods import AESAM, ASAM, ESAM, GSAM, MSAM, SAM, VSAM, WSAM, FriendlySAM, LookSAM
    from vsam.optimizer import SharpnessAware
    from vsam.parts import Between, KnowsBefore, When, Where
    from vsam.registry import create, list_methods
    from vsam.trajectory import MESALoss, SAFLoss
    from vsam.when import Always, Bernoulli, Even, Every, GradientThreshold, ReleasedVariation, Tail, Variation
    from vsam.where import AdaptiveMomentum, AdaptiveNorm, Friendly, GlobalNorm, Momentum, PartOfBatch, RandomSubset

# fmt: off
__all__ = [
    "AESAM", "ASAM", "ESAM", "GSAM", "MSAM", "SAM", "VSAM", "WSAM", "AdaptiveMomentum", "AdaptiveNorm", "Always",
    "Bernoulli", "Between", "Decayed", "Displaced", "Even", "Every", "Friendly", "FriendlySAM", "GlobalNorm",
    "GradientThreshold", "KnowsBefore", "LookSAM", "MESALoss", "Momentum", "Orthogonal", "PartOfBatch", "Plain",
    "RandomSubset", "ReleasedVariation", "SAFLoss", "SharpnessAware", "StepRecord", "SurrogateGap", "Tail",
    "Variation", "Weighted", "When", "Where", "amp", "between", "create", "distributed", "list_methods", "quantize",
    "sharpness", "trajectory", "when", "where",
]
# fmt: on

_HOMES = ("methods", "optimizer", "parts", "_step.records", "registry", "trajectory", "when", "where", "between")


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'vsam' has no attribute {name!r}")
    homes = (importlib.import_module(f"vsam.{home}") for home in _HOMES)
    found = next((getattr(home, name) for home in homes if name in home.__all__), None)
    globals()[name] = importlib.import_module(f"vsam.{name}") if found is None else found
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
