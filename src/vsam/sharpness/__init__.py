"""Flatness of a minimum: curvature, sharpness at a distance, slices through the loss, and the radius for SAM."""

from vsam.sharpness.landscape import Landscape, landscape
from vsam.sharpness.measurement import measure
from vsam.sharpness.radius import radius
from vsam.sharpness.results import Density, Eigenvalues, Estimate, Sharpness
from vsam.sharpness.watch import Watch, WatchRecord

# fmt: off
__all__ = [
    "Density", "Eigenvalues", "Estimate", "Landscape", "Sharpness", "Watch", "WatchRecord", "landscape", "measure",
    "radius",
]
# fmt: on
