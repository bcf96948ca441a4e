"""When is the second gradient taken?"""

from vsam.when.always import Always
from vsam.when.every import Every
from vsam.when.gradient_threshold import GradientThreshold
from vsam.when.variation import ReleasedVariation, Variation

__all__ = ["Always", "Every", "GradientThreshold", "ReleasedVariation", "Variation"]
