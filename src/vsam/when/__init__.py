"""Parts that decide when the second gradient is taken."""

from vsam.when.always import Always
from vsam.when.bernoulli import Bernoulli
from vsam.when.even import Even
from vsam.when.every import Every
from vsam.when.gradient_threshold import GradientThreshold
from vsam.when.tail import Tail
from vsam.when.variation import ReleasedVariation, Variation

__all__ = ["Always", "Bernoulli", "Even", "Every", "GradientThreshold", "ReleasedVariation", "Tail", "Variation"]
